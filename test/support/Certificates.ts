/** Certificates for a test, made by the command `openssl`, as an operator would. */
import { Effect, type Scope } from "effect"
import { execFile } from "node:child_process"
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import { promisify } from "node:util"

const execute = promisify(execFile)

/** The paths of a certificate and its key, and their texts. */
export interface Certificate {
  readonly certificate: string
  readonly key: string
  readonly text: { readonly certificate: string; readonly key: string }
}

export interface Authority {
  /** The path of the authority's own certificate. */
  readonly root: string
  readonly rootText: string
  /** Signs a certificate for a host, or a user. */
  readonly sign: (name: string, options?: { readonly days?: number }) => Promise<Certificate>
}

const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]

/** An authority of this name. Its files go with the scope. */
export const authority = (name: string): Effect.Effect<Authority, never, Scope.Scope> =>
  Effect.gen(function* () {
    const directory = yield* Effect.acquireRelease(
      Effect.promise(() => mkdtemp(Path.join(tmpdir(), "paid-once-ca-"))),
      (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
    )
    const inside = (file: string) => Path.join(directory, file)
    const openssl = (...args: ReadonlyArray<string>) => execute("openssl", args)
    const root = inside("ca.crt")
    let made = 0
    yield* Effect.promise(() =>
      openssl(
        "req",
        "-x509",
        ...newKey,
        "-keyout",
        inside("ca.key"),
        "-out",
        root,
        "-subj",
        `/CN=${name}`,
        "-days",
        "2"
      )
    )
    return {
      root,
      rootText: yield* Effect.promise(() => readFile(root, "utf8")),
      sign: async (host, { days = 2 } = {}) => {
        const serial = `${++made}`
        const base = inside(serial)
        const [certificate, key, request, extensions] = ["crt", "key", "csr", "ext"].map((end) => `${base}.${end}`)
        await openssl("req", ...newKey, "-keyout", key!, "-out", request!, "-subj", `/CN=${host}`)
        await writeFile(extensions!, `subjectAltName=DNS:${host}`)
        // Given here: signings side by side would overwrite one another's serial in the authority's file.
        const by = ["-CA", root, "-CAkey", inside("ca.key"), "-set_serial", serial, "-extfile", extensions!]
        await openssl("x509", "-req", "-in", request!, ...by, "-days", `${days}`, "-out", certificate!)
        const text = { certificate: await readFile(certificate!, "utf8"), key: await readFile(key!, "utf8") }
        return { certificate: certificate!, key: key!, text }
      }
    }
  })
