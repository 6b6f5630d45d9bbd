/**
 * A lock of a directory, between processes and fibers of one machine.
 *
 * It is a record lock of the kernel on the file `lock`, which only the directory's owner can open. The kernel frees it however its holder
 * dies. Node has no call for such a lock, and SQLite takes one with each exclusive transaction. The file stays empty.
 */
import { Effect, Schema } from "effect"
import { constants } from "node:fs"
import { lstat, open, readFile } from "node:fs/promises"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { pathToFileURL } from "node:url"
import * as Monotonic from "./Monotonic.ts"

/** The lock can't be had: another process holds it for too long, or its file can't be opened. */
export class DirectoryLocked extends Schema.TaggedError<DirectoryLocked>()("DirectoryLocked", {
  directory: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `the lock of ${this.directory}: ${this.reason}`
  }
}

const limitMillis = 300_000 // above the sum of all waits of a holder: a longer one means that the holder hangs
export const sayMillis = 5_000 // a start of Postgres takes less, so nobody reads of a wait that ends by itself
const retryMillis = 20 // an attempt takes two system calls

/** SQLite's result code for a file that another connection has locked. */
const busy = 5

/** Something else stands in the place of the lock's file. */
class NotAFile extends Error {}

const fileOf = (directory: string) => join(directory, "lock")

/**
 * Opens the file and locks it; undefined where another process or fiber has it.
 *
 * Nothing else may open this file: when a process closes any descriptor of a file, the kernel frees all locks that it has there.
 */
const attempt = async (directory: string): Promise<DatabaseSync | undefined> => {
  const file = fileOf(directory)
  const inode = async () => {
    const found = await lstat(file)
    // SQLite would follow a planted link, and wait at a pipe.
    if (!found.isFile()) throw new NotAFile(`${file} is not a file: remove it`)
    return found.ino
  }
  const before = await inode().catch(async (error: Error) => {
    if (error instanceof NotAFile) throw error
    // Not SQLite makes it: others must not be able to open it, because a reader could lock it too.
    const made = await open(file, constants.O_CREAT | constants.O_EXCL | constants.O_RDWR, 0o600).catch(
      (error: NodeJS.ErrnoException) => {
        if (error.code !== "EEXIST") throw error
      }
    )
    await made?.close()
    return inode()
  })
  // "rw": SQLite would make a file that everybody can read.
  const url = new URL(`${pathToFileURL(file).href}?mode=rw`)
  const database = new DatabaseSync(url, { timeout: 0 })
  try {
    database.exec("BEGIN EXCLUSIVE")
  } catch (error) {
    database.close()
    if ((error as { readonly errcode?: number }).errcode === busy) return undefined
    throw error
  }
  // `reset` deletes the file while it holds the lock. A lock on a deleted file excludes nobody.
  if ((await inode().catch(() => undefined)) === before) return database
  database.close()
  return undefined
}

/** The process that holds the lock, as the kernel lists it, in words. */
const holder = (directory: string) =>
  Effect.promise(async () => {
    const inode = (await lstat(fileOf(directory)).catch(() => undefined))?.ino
    const locks = await readFile("/proc/locks", "utf8").catch(() => "")
    const line = locks.split("\n").find((one) => one.includes(`:${inode} `))
    // A process of another container has no id here.
    return `process ${line === undefined ? "?" : /WRITE\s+(\d+)/.exec(line)?.[1]}`
  })

/** Says for whom this process waits. */
export const warn = (directory: string) =>
  Effect.flatMap(holder(directory), (who) =>
    Effect.logWarning(`waiting for ${who}, which holds the lock of ${directory}`)
  )

const take = Effect.fnUntraced(function* (directory: string) {
  const started = yield* Monotonic.millis
  let isSaid = false
  while (true) {
    const lock = yield* tryTake(directory)
    if (lock !== undefined) return lock
    const waited = (yield* Monotonic.millis) - started
    if (waited > sayMillis && !isSaid) {
      isSaid = true
      yield* warn(directory)
    }
    if (waited > limitMillis) {
      const reason = `${yield* holder(directory)} has held it for ${limitMillis / 1_000} s: stop it`
      return yield* new DirectoryLocked({ directory, reason })
    }
    yield* Effect.sleep(retryMillis)
  }
})

const tryTake = (directory: string) =>
  // Not interrupted between the lock and its return, because nobody would free it.
  Effect.uninterruptible(
    Effect.tryPromise({
      try: () => attempt(directory),
      catch: (error) => new DirectoryLocked({ directory, reason: (error as Error).message })
    })
  )

const free = (lock: DatabaseSync) => Effect.sync(() => lock.close())

/** Runs `effect` under the lock of `directory`. Waits for the lock, and says for whom after some seconds. */
export const withLock = <A, E, R>(directory: string, effect: Effect.Effect<A, E, R>) =>
  Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(restore(take(directory)), (lock) => Effect.ensuring(restore(effect), free(lock)))
  )

/** Runs `effect` under the lock, where it is free now. Otherwise it does nothing and returns undefined. */
export const withFreeLock = <A, E, R>(directory: string, effect: Effect.Effect<A, E, R>) =>
  Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(tryTake(directory), (lock) =>
      lock === undefined ? Effect.undefined : Effect.ensuring(restore(effect), free(lock))
    )
  )
