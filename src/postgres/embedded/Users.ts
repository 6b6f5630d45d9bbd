/** The users of a data directory: the lock between processes, and the register of living users. Both stay right after a `kill -9`. */
import { Effect, Option } from "effect"
import { createHash, randomUUID } from "node:crypto"
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { connect, createServer, type Server, type Socket } from "node:net"
import { join } from "node:path"
import * as Monotonic from "../../platform/Monotonic.ts"
import { attempt, type EmbeddedPostgresError, fail, processStatus, whereExists } from "./Process.ts"

const lockLimitMillis = 300_000 // above the sum of all waits of a holder: a longer one means that the holder hangs
const lockCheckMillis = 1_000 // how often the deadline is checked while the holder works
const lockRetryMillis = 10 // between two attempts, so that a refused connection (a full backlog) does not spin

interface Held {
  readonly server: Server
  readonly waiting: Set<Socket>
}

/**
 * Runs `effect` under the lock of `home`, which excludes other processes and fibers.
 *
 * The lock is a listening socket in Linux's abstract namespace, which the kernel frees however its holder dies. It works between processes
 * of one network namespace, so not between containers that share a directory.
 */
export const withLock = <A, E, R>(home: string, effect: Effect.Effect<A, E, R>) =>
  Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(restore(take(home)), (held) => Effect.ensuring(restore(effect), free(held)))
  )

const take = Effect.fnUntraced(function* (home: string) {
  const name = `\0paid-once-postgres-${createHash("sha256").update(home).digest("hex").slice(0, 32)}`
  const deadline = (yield* Monotonic.millis) + lockLimitMillis
  while ((yield* Monotonic.millis) < deadline) {
    const held = yield* bind(name)
    if (held !== undefined) return held
    yield* holderGone(name)
    yield* Effect.sleep(lockRetryMillis)
  }
  const seconds = lockLimitMillis / 1_000
  return yield* fail(
    "Locked",
    `another process has been starting or stopping the server of ${home} for ${seconds} s: stop it`
  )
})

const bind = (path: string) =>
  Effect.callback<Held | undefined, EmbeddedPostgresError>((resume) => {
    const waiting = new Set<Socket>()
    const server = createServer((socket) => {
      waiting.add(socket)
      socket.on("error", () => {}).on("close", () => waiting.delete(socket))
    })
    server.once("error", (cause: NodeJS.ErrnoException) =>
      resume(
        cause.code === "EADDRINUSE" ? Effect.succeed(undefined) : Effect.fail(fail("Locked", cause.message, cause))
      )
    )
    server.listen({ path, exclusive: true }, () => resume(Effect.succeed({ server, waiting })))
    return Effect.sync(() => server.close())
  })

const free = ({ server, waiting }: Held) =>
  Effect.callback<void>((resume) => {
    server.close(() => resume(Effect.void))
    for (const socket of waiting) socket.destroy() // the waiting processes wait for this
  })

/** Ends when the holder frees the lock or dies, both of which close the connection, and after {@link lockCheckMillis}. */
const holderGone = (path: string) =>
  Effect.callback<void>((resume) => {
    const socket = connect(path)
    socket.setTimeout(lockCheckMillis, () => socket.destroy())
    socket.on("error", () => {}).on("close", () => resume(Effect.void))
    return Effect.sync(() => socket.destroy())
  })

const usersOf = (home: string) => join(home, "users")

// Start times count from the boot, so after a reboot another process can have the same pid and start time.
const bootId = Effect.map(
  whereExists("read the boot id", () => readFile("/proc/sys/kernel/random/boot_id", "utf8")),
  (id) => (id ?? "").trim()
)

/** Registers this process as a user, once for each call. Only under the lock. */
export const register = Effect.fnUntraced(function* (home: string) {
  const status = Option.getOrThrow(yield* processStatus(process.pid))
  const boot = yield* bootId
  const file = join(usersOf(home), `${process.pid}-${status.startedAtTicks}-${randomUUID()}`)
  yield* attempt("register as a user", async () => {
    await mkdir(usersOf(home), { recursive: true, mode: 0o700 })
    await writeFile(file, boot)
  })
  return file
})

export const unregister = (file: string) => attempt("unregister as a user", () => rm(file, { force: true }))

/** The processes that use `home`, including this one. Removes the entries of dead processes. Only under the lock. */
export const livingUsers = Effect.fnUntraced(function* (home: string) {
  const boot = yield* bootId
  const names = (yield* whereExists("list the users", () => readdir(usersOf(home)))) ?? []
  const pids = new Set<number>()
  for (const name of names) {
    const [pid, startedAtTicks] = name.split("-")
    const file = join(usersOf(home), name)
    const status = yield* processStatus(Number(pid))
    const sameProcess = Option.isSome(status) && status.value.startedAtTicks === startedAtTicks
    const sameBoot = (yield* whereExists("read a user", () => readFile(file, "utf8"))) === boot
    if (sameProcess && sameBoot) pids.add(Number(pid))
    else yield* unregister(file)
  }
  return [...pids]
})
