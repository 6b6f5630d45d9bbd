/** The users of a data directory: the register of living ones, and the lock between them. Both stay right after a `kill -9`. */
import { Effect, Option } from "effect"
import { randomUUID } from "node:crypto"
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { join } from "node:path"
import * as DirectoryLock from "../../platform/DirectoryLock.ts"
import { plainFile } from "../../platform/OwnDirectory.ts"
import { attempt, fail, processStatus, whereExists } from "./Process.ts"

/** Runs `effect` under the lock of `home`, which excludes other processes and fibers. */
export const withLock = <A, E, R>(home: string, effect: Effect.Effect<A, E, R>) =>
  DirectoryLock.withLock(home, Effect.result(effect)).pipe(
    Effect.mapError((error) => fail("Locked", error.message, error)),
    Effect.flatMap(Effect.fromResult)
  )

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
    await writeFile(file, boot, { mode: 0o600 })
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
    const sameBoot = (yield* whereExists("read a user", () => readFile(file, plainFile))) === boot
    if (sameProcess && sameBoot) pids.add(Number(pid))
    else yield* unregister(file)
  }
  return [...pids]
})
