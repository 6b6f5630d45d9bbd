/**
 * A Postgres server of a test's own, for what the run's server can't be: with TLS, with a Unix socket, on a full disk. It runs the embedded
 * binaries in a temporary directory, without durability, and never as root.
 */
import { Effect, Redacted } from "effect"
import { type ChildProcess, execFile, spawn } from "node:child_process"
import { chmod, chown, cp, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import { promisify } from "node:util"
import { findBinaries } from "../../src/postgres/embedded/Host.ts"
import { freePort } from "../../src/postgres/embedded/Server.ts"

const execute = promisify(execFile)

export interface Options {
  /** Settings of the server, by name. */
  readonly settings?: Readonly<Record<string, string>>
  /** Lines of pg_hba.conf. The default lets everybody in. */
  readonly hba?: ReadonlyArray<string>
  /** The data directory, but for the write-ahead log: elsewhere, on a small disk. */
  readonly dataDirectory?: string
}

export interface Server {
  /** The superuser `postgres`, by TCP at `localhost`. */
  readonly url: Redacted.Redacted
  readonly port: number
  /** The directory of its Unix socket. */
  readonly socketDirectory: string
  /** Writes a file that the server can read, and nobody else. Returns its path. */
  readonly file: (name: string, text: string | Buffer) => Promise<string>
  /** Stops the server and starts it with other settings. Returns once it accepts connections. */
  readonly restart: (settings: Readonly<Record<string, string>>) => Promise<void>
}

/** Nobody, where this process is root: Postgres refuses to run as root. */
const account = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : undefined

/** The server's directory of binaries: a copy where the checkout is in a home that only root may enter. */
const reachable = async (native: string, directory: string) => {
  const runs = await execute(Path.join(native, "bin/postgres"), ["--version"], { ...account, cwd: "/" }).then(
    () => true,
    () => false
  )
  if (runs) return native
  const copy = Path.join(directory, "native")
  await cp(native, copy, { recursive: true, verbatimSymlinks: true })
  return copy
}

/** Starts the server, until the scope closes. */
export const acquire = Effect.fnUntraced(function* (options: Options = {}) {
  const { native } = yield* findBinaries()
  const port = yield* freePort
  const directory = yield* Effect.acquireRelease(
    // Not below TMPDIR where that is long: the path of a Unix socket has at most 107 bytes.
    Effect.promise(() => mkdtemp(Path.join(tmpdir().length > 40 ? "/tmp" : tmpdir(), "paid-once-pg-"))),
    (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
  )
  const own = (path: string) => (account === undefined ? Promise.resolve() : chown(path, account.uid, account.gid))
  const data = options.dataDirectory ?? Path.join(directory, "data")
  const file = async (name: string, text: string | Buffer) => {
    const path = Path.join(directory, name)
    await writeFile(path, text, { mode: 0o600 })
    await own(path)
    return path
  }
  const binaries = yield* Effect.promise(async () => {
    await own(directory)
    await chmod(directory, 0o755)
    const binaries = await reachable(native, directory)
    // A full disk below the write-ahead log would end the server.
    const wal = ["-X", Path.join(directory, "wal")]
    const flags = ["-D", data, ...wal, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    await execute(Path.join(binaries, "bin/initdb"), flags, { ...account, cwd: "/" })
    return binaries
  })
  const hba = yield* Effect.promise(() =>
    file("pg_hba.conf", (options.hba ?? ["local all all trust", "host all all all trust"]).join("\n"))
  )
  let child: ChildProcess | undefined
  const start = (settings: Readonly<Record<string, string>>) =>
    new Promise<void>((resolve, reject) => {
      const all: Readonly<Record<string, string>> = {
        fsync: "off",
        full_page_writes: "off",
        listen_addresses: "localhost",
        max_connections: "100",
        ...settings,
        port: String(port),
        unix_socket_directories: directory,
        hba_file: hba
      }
      const flags = Object.entries(all).flatMap(([name, value]) => ["-c", `${name}=${value}`])
      const started = spawn(Path.join(binaries, "bin/postgres"), ["-D", data, ...flags], {
        ...account,
        cwd: "/",
        env: { PATH: process.env["PATH"], LC_ALL: "C" },
        stdio: ["ignore", "ignore", "pipe"]
      })
      child = started
      let log = ""
      started.stderr.on("data", (chunk: Buffer) => {
        log = (log + chunk.toString()).slice(-4_000)
        if (log.includes("ready to accept connections")) resolve()
      })
      started.once("error", reject)
      started.once("exit", () => reject(new Error(`Postgres ended: ${log}`)))
    })
  const stop = () =>
    new Promise<void>((resolve) => {
      const stopped = child
      if (stopped === undefined || stopped.exitCode !== null || stopped.signalCode !== null) return resolve()
      stopped.once("exit", () => resolve())
      // Immediate: nobody needs the data.
      stopped.kill("SIGQUIT")
    })
  yield* Effect.acquireRelease(
    Effect.promise(() => start(options.settings ?? {})),
    () => Effect.promise(stop)
  )
  return {
    url: Redacted.make(`postgres://postgres@localhost:${port}/postgres`),
    port,
    socketDirectory: directory,
    file,
    restart: async (settings) => {
      await stop()
      await start(settings)
    }
  } satisfies Server
})
