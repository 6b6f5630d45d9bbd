/** The lock of a directory, between processes and fibers. */
import { afterEach, assert, beforeEach, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Logger } from "effect"
import { execFileSync, spawn } from "node:child_process"
import { createHash } from "node:crypto"
import { mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as DirectoryLock from "../../src/platform/DirectoryLock.ts"
import { root as checkout } from "../support/Postgres.ts"

let directory = ""
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "directory-lock-"))
})
afterEach(() => rmSync(directory, { recursive: true, force: true }))

const program = `
  const { Effect } = await import("effect")
  const { withLock } = await import(${JSON.stringify(join(checkout, "src/platform/DirectoryLock.ts"))})
  await Effect.runPromise(withLock(process.argv[1], Effect.promise(() => {
    process.stdout.write("held")
    return new Promise((resolve) => process.stdin.on("end", resolve).resume())
  })))
`

/** Another process that holds the lock. */
const holder = Effect.acquireRelease(
  Effect.promise(async () => {
    const child = spawn(process.execPath, ["--input-type=module", "-e", program, directory], {
      cwd: checkout,
      stdio: ["pipe", "pipe", "inherit"]
    })
    const exited = new Promise<void>((resolve) => child.once("close", () => resolve()))
    await new Promise((resolve) => child.stdout.once("data", resolve))
    return { child, exited }
  }),
  ({ child, exited }) => Effect.promise(() => (child.kill("SIGKILL"), exited))
)

const takeNow = Effect.suspend(() => DirectoryLock.withFreeLock(directory, Effect.succeed("mine")))

describe("the lock of a directory", () => {
  it.live("excludes other fibers", () =>
    Effect.gen(function* () {
      const release = yield* Deferred.make<void>()
      const held = yield* Deferred.make<void>()
      const holding = Effect.andThen(Deferred.succeed(held, undefined), Deferred.await(release))
      const fiber = yield* Effect.forkChild(DirectoryLock.withLock(directory, holding))
      yield* Deferred.await(held)
      assert.isUndefined(yield* takeNow)
      const waiting = yield* Effect.forkChild(DirectoryLock.withLock(directory, Effect.succeed("next")))
      yield* Deferred.succeed(release, undefined)
      yield* Fiber.join(fiber)
      assert.strictEqual(yield* Fiber.join(waiting), "next")
      assert.strictEqual(yield* takeNow, "mine")
    })
  )

  it.live("excludes other processes, also frozen ones, and is free once its holder is killed", () =>
    Effect.gen(function* () {
      const { child, exited } = yield* holder
      assert.isUndefined(yield* takeNow)
      child.kill("SIGSTOP")
      assert.isUndefined(yield* takeNow)
      child.kill("SIGKILL")
      yield* Effect.promise(() => exited)
      assert.strictEqual(yield* takeNow, "mine")
    }).pipe(Effect.scoped)
  )

  it.live("a wait names the process that it waits for", () =>
    Effect.gen(function* () {
      const { child } = yield* holder
      const said = yield* Deferred.make<string>()
      const logger = Logger.make(({ message }) => Deferred.doneUnsafe(said, Effect.succeed(String(message))))
      const waiting = yield* Effect.forkChild(
        DirectoryLock.withLock(directory, Effect.succeed("mine")).pipe(Effect.provide(Logger.layer([logger])))
      )
      assert.include(
        yield* Deferred.await(said),
        `waiting for process ${child.pid}, which holds the lock of ${directory}`
      )
      child.stdin.end()
      assert.strictEqual(yield* Fiber.join(waiting), "mine")
    }).pipe(Effect.scoped)
  )

  it.live("a lock whose file was deleted excludes nobody, and the next one is whole", () =>
    Effect.gen(function* () {
      const lock = join(directory, "lock")
      yield* DirectoryLock.withLock(
        directory,
        Effect.sync(() => rmSync(lock))
      )
      assert.strictEqual(yield* takeNow, "mine")
      yield* holder
      assert.isUndefined(yield* takeNow)
    }).pipe(Effect.scoped)
  )

  it.live("a link or a pipe in its place is refused, and neither opened nor followed", () =>
    Effect.gen(function* () {
      const lock = join(directory, "lock")
      const target = join(directory, "target")
      writeFileSync(target, "")
      const plant = [() => symlinkSync(target, lock), () => execFileSync("mkfifo", [lock]), () => mkdirSync(lock)]
      for (const step of plant) {
        step()
        const error = yield* Effect.flip(takeNow)
        assert.include(error.message, `${lock} is not a file: remove it`)
        rmSync(lock, { recursive: true })
      }
      assert.strictEqual(yield* takeNow, "mine")
    })
  )

  it.live("no other user of the machine can hold it", () =>
    Effect.gen(function* () {
      // Any user can bind a name of the abstract namespace, which has no owners.
      const name = `\0paid-once-postgres-${createHash("sha256").update(directory).digest("hex").slice(0, 32)}`
      yield* Effect.acquireRelease(
        Effect.promise(
          () =>
            new Promise<ReturnType<typeof createServer>>((resolve) => {
              const server = createServer().listen(name, () => resolve(server))
            })
        ),
        (server) => Effect.sync(() => server.close())
      )
      assert.strictEqual(yield* takeNow, "mine")
      assert.strictEqual(statSync(join(directory, "lock")).mode & 0o777, 0o600)
      if (process.getuid?.() !== 0) return
      execFileSync("chmod", ["0777", directory])
      // Reading would do: a reader can hold a shared lock.
      const read = () => execFileSync("cat", [join(directory, "lock")], { uid: 65_534, gid: 65_534, stdio: "pipe" })
      assert.throws(read, /Permission denied/)
    }).pipe(Effect.scoped)
  )

  it.live("a directory that is missing is an error with its path", () =>
    Effect.gen(function* () {
      const missing = join(directory, "missing")
      const error = yield* Effect.flip(DirectoryLock.withLock(missing, Effect.void))
      assert.include(error.message, missing)
      mkdirSync(missing)
      yield* DirectoryLock.withLock(missing, Effect.void)
    })
  )
})
