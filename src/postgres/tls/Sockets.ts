/**
 * Every socket to Postgres: TCP or Unix, in clear text or with TLS, as the URL says (Address.ts).
 *
 * The driver gets a socket that is already what the URL asks for. Its own TLS knows neither a `prefer` that takes any certificate, nor
 * `verify-ca`, nor files. Its user reads and writes plain messages, so a change to the socket (`fast/DeferredBegin.ts`) works with TLS too.
 *
 * Protocol: https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-SSL
 */
import { PgProtocol } from "@effect/sql-pg"
import { Effect, Redacted, Result } from "effect"
import { readFileSync } from "node:fs"
import * as Net from "node:net"
import * as Tls from "node:tls"
import type { Sockets } from "../../platform/DatabaseSettings.ts"
import * as ScramOnly from "../../platform/ScramOnly.ts"
import * as Address from "./Address.ts"
import { explain } from "./Failure.ts"

/**
 * Sockets as the URL says. A URL that {@link Address.parse} refuses, and a file that can't be read, fail the connection with their sentence.
 *
 * `onClearText` gets the host of each connection that leaves the machine without TLS, also where `prefer` found none.
 */
export const over =
  (onClearText: (host: string) => void): Sockets =>
  (url, setUp = () => {}) => ({
    url,
    // The socket has its TLS before the driver sees it.
    ssl: false,
    stream: () =>
      Result.match(Address.parse(Redacted.value(url)), {
        onFailure: (sentence) => new Net.Socket().destroy(new Error(sentence)),
        onSuccess: ({ isLocal, requiresScram, target, tls }) => {
          const socket = "path" in target ? Net.connect(target) : Net.connect({ ...target, noDelay: true })
          // Before TLS: it reads what comes out of it.
          if (requiresScram) ScramOnly.install(socket)
          if ("host" in target) {
            const clear = isLocal ? () => {} : () => onClearText(target.host)
            // Before `setUp`: a change to the socket is about what is inside of TLS.
            if (tls === undefined) socket.once("connect", clear)
            else negotiate(socket, target.host, tls, clear)
          }
          setUp(socket)
          return socket
        }
      })
  })

/** {@link over}, with a warning for each host that is spoken to in clear text over a network. */
export const warning: Effect.Effect<Sockets> = Effect.map(Effect.context<never>(), (context) => {
  const warned = new Set<string>()
  return over((host) => {
    if (warned.has(host)) return
    warned.add(host)
    Effect.runForkWith(context)(
      Effect.logWarning(
        `the connection to Postgres at ${host} is not encrypted, and it leaves this machine: set sslmode=verify-full and sslrootcert in its URL`
      )
    )
  })
})

const systemAuthorities = () => {
  // The package runs on Node 20 too, which can't read the machine's.
  if (typeof Tls.getCACertificates !== "function") throw new Error("sslrootcert=system needs Node 22.15 or newer")
  return Tls.getCACertificates("system")
}

/** Read for each connection, as libpq does: a certificate that was renewed needs no restart. */
const secureOptions = (host: string, { client, mode, rootCertificate }: Address.TlsWish): Tls.ConnectionOptions => {
  const read = (parameter: string, path: string) =>
    Result.getOrThrowWith(
      Result.try(() => readFileSync(path)),
      // Without the cause: the innermost error is the one that is shown.
      (error) => new Error(`${parameter}: can't read ${path} (${(error as NodeJS.ErrnoException).code})`)
    )
  return {
    host,
    // Names only: TLS knows no address here.
    ...(Net.isIP(host) === 0 ? { servername: host } : {}),
    rejectUnauthorized: mode === "verify-ca" || mode === "verify-full",
    ...(mode === "verify-full" ? {} : { checkServerIdentity: () => undefined }),
    ...(rootCertificate === undefined
      ? {}
      : { ca: rootCertificate === "system" ? systemAuthorities() : read("sslrootcert", rootCertificate) }),
    ...(client === undefined ? {} : { cert: read("sslcert", client.certificate), key: read("sslkey", client.key) })
  }
}

const yes = 0x53
const no = 0x4e
const error = 0x45

/**
 * Asks the server for TLS. What the user writes meanwhile waits until the server's certificate was checked. From then on the user's
 * reads and writes of `socket` are those of the TLS connection, or of the socket itself where the server has no TLS and need not.
 */
const negotiate = (socket: Net.Socket, host: string, tls: Address.TlsWish, onClearText: () => void): void => {
  const write = socket.write.bind(socket)
  const push = socket.push.bind(socket)
  const held: Array<Uint8Array> = []
  /** Without a cause: the innermost error is the one that is shown. */
  const failure = (reason: unknown) => {
    const sentence = explain(reason, host, tls)
    return sentence === undefined && reason instanceof Error ? reason : new Error(sentence ?? String(reason))
  }

  let send = (chunk: Uint8Array, ..._rest: ReadonlyArray<never>): boolean => held.push(chunk) > 0
  const settle = (through: typeof send) => {
    send = through
    for (const chunk of held) through(chunk)
  }

  const secure = () => {
    const inner = Tls.connect({ ...secureOptions(host, tls), socket })
    // A TLS connection that fails first destroys the socket below it, and only then says why.
    const destroy = socket._destroy.bind(socket)
    socket._destroy = (error, done) => destroy(error ?? (inner.errored === null ? null : failure(inner.errored)), done)
    inner.on("error", (reason) => socket.destroy(failure(reason)))
    inner.on("close", () => socket.destroy())
    inner.on("end", () => socket.push(null))
    inner.on("data", (chunk: Buffer) => {
      if (!socket.push(chunk)) inner.pause()
    })
    inner.once("secureConnect", () => settle(inner.write.bind(inner)))
    socket._read = () => inner.resume()
    socket.end = (...last: ReadonlyArray<never>) => {
      inner.end(...last)
      return socket
    }
  }

  let receive = (chunk: Buffer | null): boolean => {
    receive = push
    if (chunk === null) return push(null)
    // One byte: more would be plain text that somebody on the way has put in front of the encrypted one (CVE-2021-23222).
    if (chunk.length === 1 && chunk[0] === yes) {
      try {
        secure()
      } catch (cause) {
        socket.destroy(failure(cause))
      }
      return true
    }
    if (chunk.length === 1 && chunk[0] === no && tls.mode === "prefer") {
      onClearText()
      settle(write)
      return true
    }
    // An error instead of an answer (too many connections) is the driver's to report, but nobody has vouched for it.
    if (chunk[0] === error && tls.mode === "prefer") return push(chunk)
    socket.destroy(failure(chunk[0] === no ? "no TLS" : "no answer"))
    return false
  }

  socket.write = (chunk: Uint8Array, ...rest: ReadonlyArray<never>) => send(chunk, ...rest)
  socket.push = (chunk: Buffer | null) => receive(chunk)
  write(PgProtocol.encodeSslRequest())
}
