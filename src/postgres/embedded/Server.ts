/** The server of one directory: found, started and stopped. All callers must hold the directory's lock (Users.ts). */
import { Clock, Effect, Exit, Option } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { open, readFile, readlink, realpath, rename, rm, stat } from "node:fs/promises"
import { createServer } from "node:net"
import { join } from "node:path"
import * as Monotonic from "../../platform/Monotonic.ts"
import { plainFile } from "../../platform/OwnDirectory.ts"
import type { Host } from "./Account.ts"
import { dataOf, logOf, type Settings } from "./Data.ts"
import {
  attempt,
  type EmbeddedPostgresError,
  fail,
  processStatus,
  spawnArguments,
  spawned,
  whereExists
} from "./Process.ts"
import { removeLeftovers, socketDirectory } from "./Socket.ts"

const defaults: Settings = {
  shared_buffers: "128MB", // fits the demo's working set, and is small for a laptop
  max_connections: "200", // several service processes, each with its pools and control connection
  shared_preload_libraries: "",
  listen_addresses: "", // the Unix socket only: on a port of this machine any user could take a dead server's place
  log_checkpoints: "off" // noise in a log that is read after failures
}

const readyLimitSeconds = 60 // a start takes tenths of a second, a crash recovery of max_wal_size (1 GB) tens of seconds
const stopLimitSeconds = 30 // a fast shutdown writes one checkpoint
const quitLimitSeconds = 10 // after SIGQUIT Postgres writes nothing
const pollMillis = 15 // well below the time of a start, and a poll reads one small file
const retryMillis = 200 // between starts that failed for a passing reason, such as backends of a killed server that are still ending
const logLimitBytes = 1_000_000 // weeks of warnings. A larger log is renamed at the next start, and one older log is kept
const tailBytes = 2_000 // the last dozen lines: the FATAL and what led to it

/** A living server, as its process and postmaster.pid describe it. */
export interface Running {
  readonly pid: number
  readonly startedAtTicks: string
  readonly phase: "starting" | "ready" | "stopping"
}

/** The server that runs on `base`; undefined where none does. */
export const inspect = Effect.fnUntraced(function* (
  base: string
): Effect.fn.Return<Running | undefined, EmbeddedPostgresError> {
  const text = yield* whereExists("read postmaster.pid", () => readFile(pidFileOf(base), plainFile))
  if (text === undefined) return undefined
  const lines = text.split("\n").map((line) => line.trim())
  const pid = Number(lines[0])
  const status = yield* processStatus(pid)
  if (Option.isNone(status) || status.value.command !== "postgres" || !(yield* runsOn(pid, dataOf(base))))
    return undefined
  const phase = lines[7] === "ready" || lines[7] === "stopping" ? lines[7] : "starting"
  return { pid, startedAtTicks: status.value.startedAtTicks, phase }
})

const pidFileOf = (base: string) => join(dataOf(base), "postmaster.pid")

/** Whether the process runs on this directory. A pid alone proves nothing: after a reboot it may belong to another process. */
const runsOn = (pid: number, data: string) =>
  attempt("look at the server's process", async () => {
    const real = await realpath(data)
    if ((await readlink(`/proc/${pid}/cwd`).catch(() => undefined)) === real) return true
    // A container's root can't read the cwd link of another user's process, but can read its arguments.
    const args = (await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")).split("\0")
    return args[args.indexOf("-D") + 1] === real
  })

const writingLimitMillis = 2_000 // Postgres fills a new pid file within microseconds
const impossiblePid = 2_147_483_647 // above the kernel's largest pid, 2^22

/**
 * Marks the pid file of a dead server as stale, also where a living process has its pid.
 *
 * The file is not removed. Postgres reads the shared memory's key from it, and checks there for orphaned backends that still write.
 */
const disown = Effect.fnUntraced(function* (base: string) {
  const file = pidFileOf(base)
  const now = yield* Clock.currentTimeMillis
  yield* whereExists("mark postmaster.pid as stale", async () => {
    const lines = (await readFile(file, plainFile)).split("\n")
    const { gid, mtimeMs, uid } = await stat(file)
    if (lines.length < 2) {
      // Either a crash of the machine cut the file off, and Postgres would refuse it; or a server of a killed run is writing it.
      return now - mtimeMs > writingLimitMillis ? rm(file) : undefined
    }
    // The server's account may write here, and this process may be root: nothing that lies here already is written to.
    await rm(`${file}.half`, { force: true })
    const half = await open(`${file}.half`, "wx", 0o600)
    try {
      await half.writeFile([impossiblePid, ...lines.slice(1)].join("\n"))
      await half.chown(uid, gid)
    } finally {
      await half.close()
    }
    await rename(`${file}.half`, file)
  })
})

/**
 * Starts the server of `host`, or joins a running one. Waits for a server that is starting, and for the end of one that is stopping. Returns
 * whether it joined.
 */
export const start = Effect.fn("EmbeddedPostgres.start")(function* (home: string, host: Host, settings: Settings) {
  const sockets = yield* socketDirectory(home, host)
  const deadline = (yield* Monotonic.millis) + readyLimitSeconds * 1_000
  let joined = true
  while ((yield* Monotonic.millis) < deadline) {
    const server = yield* inspect(host.base)
    if (server?.phase === "ready") return joined
    if (server !== undefined) {
      yield* Effect.sleep(pollMillis)
      continue
    }
    yield* disown(host.base)
    yield* removeLeftovers(sockets)
    joined = !(yield* launch(home, host, sockets, settings, deadline))
    if (joined) yield* Effect.sleep(retryMillis)
  }
  return yield* fail(
    "StartFailed",
    `Postgres in ${host.base} is not ready after ${readyLimitSeconds} s: ${yield* tail(home, 0)}`
  )
})

/** These override the caller's settings, and those in the data. */
const fixed = (sockets: string): Settings => ({
  // A list, whose entries may be quoted.
  unix_socket_directories: `"${sockets.replaceAll('"', '""')}"`,
  unix_socket_permissions: "0700",
  password_encryption: "scram-sha-256",
  allow_alter_system: "off"
})

// Another attempt can succeed: a server of a killed run has started first or is still ending.
const passing = /lock file "postmaster\.pid" (already exists|is empty)|is still in use/

/** Starts a server process and waits until it is ready (true), or has ended for a passing reason (false). */
const launch = (home: string, host: Host, sockets: string, settings: Settings, deadline: number) =>
  Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      const from = yield* rotateLog(home)
      const child = yield* spawnServer(home, host, { ...defaults, ...settings, ...fixed(sockets) })
      const follow = Effect.gen(function* () {
        while ((yield* Monotonic.millis) < deadline) {
          const server = yield* inspect(host.base)
          if (server?.pid === child.pid && server?.phase === "ready") return true
          if (child.exitCode !== null || child.signalCode !== null) {
            const log = yield* tail(home, from)
            if (passing.test(log)) return false
            const how = child.signalCode ?? `exit code ${child.exitCode}`
            return yield* fail("StartFailed", `Postgres ended at its start in ${host.base} (${how}): ${log}`)
          }
          yield* Effect.sleep(pollMillis)
        }
        return false
      })
      // An interrupted or failed start leaves no server behind.
      return yield* restore(follow).pipe(
        Effect.onExit((exit) => (Exit.isSuccess(exit) && exit.value ? Effect.void : Effect.ignore(endChild(child))))
      )
    })
  )

// The pid of a child that has ended may belong to another process.
const endChild = (child: ChildProcess) =>
  Effect.suspend(() =>
    child.pid === undefined || child.exitCode !== null || child.signalCode !== null ? Effect.void : end(child.pid)
  )

/** A port of 127.0.0.1 that is free at this moment, for a caller who wants one of those in the settings. */
export const freePort = Effect.callback<number, EmbeddedPostgresError>((resume) => {
  const server = createServer().on("error", (cause) =>
    resume(Effect.fail(fail("StartFailed", "no free port on 127.0.0.1", cause)))
  )
  server.listen({ host: "127.0.0.1", port: 0, exclusive: true }, () => {
    const address = server.address()
    server.close(() => resume(Effect.succeed(typeof address === "object" && address !== null ? address.port : 0)))
  })
})

const spawnServer = Effect.fnUntraced(function* (home: string, { account, base, binaries }: Host, settings: Settings) {
  const args = ["-D", dataOf(base), ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`])]
  const how = spawnArguments(account, join(binaries.native, "bin/postgres"), args)
  const log = yield* attempt("open the log", () => open(logOf(home), "a", 0o600))
  return yield* Effect.callback<ChildProcess, EmbeddedPostgresError>((resume) => {
    const refused = (cause: Error) =>
      resume(Effect.fail(fail("StartFailed", `cannot run Postgres: ${cause.message}`, cause)))
    const child = spawned(() => spawn(how.command, how.args, { ...how.options, stdio: ["ignore", log.fd, log.fd] }))
    if (child instanceof Error) return refused(child)
    child.unref() // it outlives this process while others use it
    child.once("error", refused)
    child.once("spawn", () => resume(Effect.succeed(child)))
  }).pipe(Effect.ensuring(Effect.promise(() => log.close())))
})

/** Stops the server of `base`, where one runs: it disconnects its clients and writes a checkpoint. Waits for the end of its process. */
export const stop = Effect.fn("EmbeddedPostgres.stop")(function* (base: string) {
  const server = yield* inspect(base)
  if (server !== undefined) yield* end(server.pid)
})

const end = Effect.fnUntraced(function* (pid: number) {
  const before = Option.getOrUndefined(yield* processStatus(pid))
  if (before === undefined) return
  for (const [signal, seconds] of [
    ["SIGINT", stopLimitSeconds],
    ["SIGQUIT", quitLimitSeconds]
  ] as const) {
    yield* attempt(`stop Postgres, process ${pid}`, async () => process.kill(pid, signal), "StopFailed").pipe(
      Effect.catchIf(
        (error) => (error.cause as NodeJS.ErrnoException).code === "ESRCH",
        () => Effect.void
      )
    )
    const deadline = (yield* Monotonic.millis) + seconds * 1_000
    while ((yield* Monotonic.millis) < deadline) {
      const now = Option.getOrUndefined(yield* processStatus(pid))
      if (now?.startedAtTicks !== before.startedAtTicks) return
      yield* Effect.sleep(pollMillis)
    }
  }
  return yield* fail(
    "StopFailed",
    `Postgres, process ${pid}, did not stop within ${stopLimitSeconds + quitLimitSeconds} s`
  )
})

/** Renames a large log. Returns the offset in the log at which the lines of the next start begin. */
const rotateLog = Effect.fnUntraced(function* (home: string) {
  const size = (yield* whereExists("look at the log", () => stat(logOf(home))))?.size ?? 0
  if (size < logLimitBytes) return size
  yield* attempt("set the log aside", () => rename(logOf(home), `${logOf(home)}.1`))
  return 0
})

const tail = (home: string, from: number) =>
  attempt("read the log", async () => {
    const log = await readFile(logOf(home)).catch(() => Buffer.from("(no log)"))
    return log
      .subarray(Math.max(from, log.length - tailBytes))
      .toString()
      .trim()
  })
