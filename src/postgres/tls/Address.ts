/**
 * What a URL of Postgres says of the connection: TCP or a Unix socket, and which TLS. Names and meanings are libpq's.
 *
 * A parameter that is not listed here is refused: a misspelt `sslmode` must not become a connection in clear text. Source:
 * https://www.postgresql.org/docs/current/libpq-ssl.html and …/libpq-connect.html
 */
import { Result } from "effect"
import * as Net from "node:net"

/** What is asked of TLS. Without it the connection is in clear text. */
export interface TlsWish {
  /**
   * - `prefer`: TLS where the server offers it, by any certificate; else clear text
   * - `require`: TLS by any certificate
   * - `verify-ca`: a certificate that an authority of `rootCertificate` has signed
   * - `verify-full`: moreover, the certificate is for the URL's host
   */
  readonly mode: "prefer" | "require" | "verify-ca" | "verify-full"
  /** A PEM file with the authorities, or `system` for those of this machine. */
  readonly rootCertificate: string | undefined
  /** PEM files of the client's certificate and of its key. */
  readonly client: { readonly certificate: string; readonly key: string } | undefined
}

/** Where the server is, and how it is reached. */
export interface Address {
  readonly target: { readonly host: string; readonly port: number } | { readonly path: string }
  readonly tls: TlsWish | undefined
  /** Whether the server has to prove that it knows the password: `require_auth=scram-sha-256`. */
  readonly requiresScram: boolean
  /** No other machine is on the way: a Unix socket, or a loopback address. */
  readonly isLocal: boolean
}

const defaultPort = 5432

/** The parameters that the driver reads, and those of TLS and authentication. */
const known: ReadonlySet<string> = new Set([
  "host",
  "port",
  "user",
  "password",
  "dbname",
  "application_name",
  "options",
  "connect_timeout",
  "sslmode",
  "sslrootcert",
  "sslcert",
  "sslkey",
  "require_auth"
])

const modes = ["disable", "prefer", "require", "verify-ca", "verify-full"] as const

const isLoopback = (host: string) =>
  host === "localhost" || host.endsWith(".localhost") || host === "::1" || (Net.isIPv4(host) && host.startsWith("127."))

const tlsOf = (parameters: ReadonlyMap<string, string>): Result.Result<TlsWish | undefined, string> => {
  const rootCertificate = parameters.get("sslrootcert")
  const isSystem = rootCertificate === "system"
  // As in libpq: who trusts the machine's authorities has to compare the name, for anybody gets a certificate from one of them.
  const name = parameters.get("sslmode") ?? (isSystem ? "verify-full" : "prefer")
  const mode = modes.find((candidate) => candidate === name)
  if (mode === undefined) {
    return Result.fail(`sslmode is one of ${modes.join(", ")}, and not "${name}"`)
  }
  const certificate = parameters.get("sslcert")
  const key = parameters.get("sslkey")
  if ((certificate === undefined) !== (key === undefined)) {
    return Result.fail("sslcert and sslkey belong together: set both")
  }
  if (isSystem && mode !== "verify-full") {
    return Result.fail("sslrootcert=system needs sslmode=verify-full")
  }
  if (rootCertificate === undefined && mode.startsWith("verify")) {
    return Result.fail(
      `sslmode=${mode} needs sslrootcert: the file of the authorities' certificates${mode === "verify-full" ? ", or system" : ""}`
    )
  }
  if (mode === "disable") return Result.succeed(undefined)
  return Result.succeed({
    // As in libpq: a root certificate that is named is used.
    mode: mode === "require" && rootCertificate !== undefined ? "verify-ca" : mode,
    rootCertificate,
    client: certificate === undefined || key === undefined ? undefined : { certificate, key }
  })
}

/** Reads a URL; fails with a sentence that names the parameter to change. The URL's secrets are not in it. */
export const parse = (text: string): Result.Result<Address, string> => {
  if (!URL.canParse(text))
    return Result.fail("it is no URL; it has the form postgres://user:password@host:port/database")
  const url = new URL(text)
  const parameters = new Map(url.searchParams)
  for (const name of parameters.keys()) {
    if (name === "ssl") {
      return Result.fail(
        "ssl is no parameter of libpq: set sslmode=require or, safer, sslmode=verify-full with sslrootcert"
      )
    }
    if (!known.has(name)) return Result.fail(`the parameter ${name} is unknown; there are ${[...known].join(", ")}`)
  }
  return Result.flatMap(
    Result.try({ try: () => decodeURIComponent(url.hostname), catch: () => "its host is not percent-encoded rightly" }),
    (hostname) => {
      const host = parameters.get("host") ?? (hostname === "" ? "localhost" : hostname.replace(/^\[|\]$/g, ""))
      const port = Number(parameters.get("port") ?? (url.port === "" ? defaultPort : url.port))
      if (!Number.isInteger(port) || port < 1 || port > 65_535)
        return Result.fail("port is a whole number from 1 to 65535")
      const authentication = parameters.get("require_auth")
      if (authentication !== undefined && authentication !== "scram-sha-256")
        return Result.fail(`require_auth is scram-sha-256 here, and not "${authentication}"`)
      const requiresScram = authentication !== undefined
      return Result.map(tlsOf(parameters), (tls): Address =>
        // As in libpq: TLS is for TCP, and a Unix socket leaves the machine for nobody.
        host.startsWith("/")
          ? { target: { path: `${host}/.s.PGSQL.${port}` }, tls: undefined, requiresScram, isLocal: true }
          : { target: { host, port }, tls, requiresScram, isLocal: isLoopback(host) }
      )
    }
  )
}
