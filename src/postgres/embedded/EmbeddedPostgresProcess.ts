/** What the embedded Postgres's files share: their error, running a command as an account, and what the kernel knows of a process. */
import { Effect, Option, Schema } from "effect"
import { spawn } from "node:child_process"
import { readFile } from "node:fs/promises"

/** Why there is no embedded Postgres. The message says what is wrong, where, and what the reader can do about it. */
export class EmbeddedPostgresError extends Schema.TaggedError<EmbeddedPostgresError>()("EmbeddedPostgresError", {
  reason: Schema.Literals([
    "UnsupportedPlatform", // no binaries for this machine
    "BrokenPackage", // binaries installed, but not runnable
    "NoAccount", // nobody here may run Postgres
    "WrongOwner", // the data belongs to an account that this process cannot become
    "DataMissing", // a part of the data is gone
    "IncompatibleMajor", // the data is of another major version
    "InitFailed",
    "StartFailed",
    "StopFailed",
    "Locked", // another process starts or stops the server, for too long
    "InUse", // reset while living processes use the server
    "FileSystem"
  ]),
  message: Schema.String,
  cause: Schema.optional(Schema.Defect())
}) {}

type Reason = EmbeddedPostgresError["reason"]

/** The account Postgres runs as. In a namespace the real user stays ours, so a home that is closed to others stays open to it. */
export type Account =
  | { readonly _tag: "Self" }
  | { readonly _tag: "UserNamespace"; readonly uid: number; readonly gid: number }
  | { readonly _tag: "OtherUser"; readonly uid: number; readonly gid: number }

export const fail = (reason: Reason, message: string, cause?: unknown) =>
  new EmbeddedPostgresError({ reason, message, ...(cause === undefined ? {} : { cause }) })

/** A short step on the file system (or its like) whose failure says what was being done. It is not interrupted half-way. */
export const attempt = <A>(doing: string, step: () => Promise<A>, reason: Reason = "FileSystem") =>
  // A promise cannot be called back: interrupted, it would go on and write after the clean-up.
  Effect.uninterruptible(
    Effect.tryPromise({
      try: step,
      catch: (cause) => fail(reason, `${doing}: ${cause instanceof Error ? cause.message : String(cause)}`, cause)
    })
  )

/** The value of `step`, or undefined where the file it wants is not there. */
export const whereExists = <A>(doing: string, step: () => Promise<A>) =>
  attempt(doing, () =>
    step().catch((cause: NodeJS.ErrnoException) => {
      if (cause.code === "ENOENT" || cause.code === "ENOTDIR") return undefined
      throw cause
    })
  )

/** The arguments of node's `spawn` that run `command` as `account`, in a session of its own: a terminal's Ctrl-C is not for it. */
export const spawnArguments = (account: Account, command: string, args: ReadonlyArray<string>) => {
  const mapped =
    account._tag === "UserNamespace"
      ? { command: "unshare", args: [...namespaceFlags(account), "--", command, ...args] }
      : { command, args: [...args] }
  const options = {
    detached: true,
    cwd: "/", // ours may be closed to the account
    // LC_ALL: we read Postgres's messages. No LD_LIBRARY_PATH or PG*: they would outrank the package's own libraries and our settings.
    env: { PATH: process.env.PATH ?? "/usr/bin:/bin", LC_ALL: "C" },
    ...(account._tag === "OtherUser" ? { uid: account.uid, gid: account.gid } : {})
  }
  return { ...mapped, options }
}

const namespaceFlags = (account: { readonly uid: number; readonly gid: number }) => [
  "--user",
  `--map-user=${account.uid}`,
  `--map-group=${account.gid}`
]

/** What `start` spawns, or why not: node reports a missing command by an event, but throws where it may not become the user. */
export const spawned = <A>(start: () => A): A | Error => {
  try {
    return start()
  } catch (cause) {
    return cause instanceof Error ? cause : new Error(String(cause))
  }
}

const outputLimit = 4_000 // characters: the end of an initdb report, where the reason stands; more would flood a log line

/** Runs a command to its end. Interrupted, it kills the whole process group and waits until nobody of it writes any more. */
export const run = (account: Account, command: string, args: ReadonlyArray<string>, input = "") =>
  Effect.callback<{ readonly code: number | null; readonly output: string }, EmbeddedPostgresError>((resume) => {
    const how = spawnArguments(account, command, args)
    const child = spawned(() => spawn(how.command, how.args, { ...how.options, stdio: "pipe" }))
    if (child instanceof Error)
      return resume(Effect.fail(fail("BrokenPackage", `cannot run ${command}: ${child.message}`, child)))
    let output = ""
    const collect = (chunk: Buffer) => {
      output = (output + chunk.toString()).slice(-outputLimit)
    }
    child.stdout.on("data", collect)
    child.stderr.on("data", collect)
    child.stdin.on("error", () => {}) // it exited without reading: its exit code tells
    child.on("error", (cause) =>
      resume(Effect.fail(fail("BrokenPackage", `cannot run ${command}: ${cause.message}`, cause)))
    )
    child.on("close", (code) => resume(Effect.succeed({ code, output })))
    child.stdin.end(input)
    return Effect.callback<void>((stopped) => {
      if (child.pid === undefined) return stopped(Effect.void)
      child.once("close", () => stopped(Effect.void))
      try {
        process.kill(-child.pid, "SIGKILL")
      } catch {
        // It has ended by itself: "close" is on its way.
      }
    })
  })

/** What the kernel knows of a process. The start time tells it from a later one that got the same number. */
export interface ProcessStatus {
  readonly command: string
  readonly startedAtTicks: string
}

/** A living process, or none. A zombie is dead: its parent merely has not asked (an init that never asks is common in containers). */
export const processStatus = (pid: number): Effect.Effect<Option.Option<ProcessStatus>> =>
  Effect.promise(() => readFile(`/proc/${pid}/stat`, "utf8").catch(() => "")).pipe(
    Effect.map((text) => {
      // The command stands in parentheses and may hold any character, so the fields are counted from the last ")".
      const end = text.lastIndexOf(")")
      const fields = text.slice(end + 2).split(" ")
      const [state, startedAtTicks] = [fields[0], fields[19]]
      if (end < 0 || startedAtTicks === undefined || state === "Z" || state === "X") return Option.none()
      return Option.some({ command: text.slice(text.indexOf("(") + 1, end), startedAtTicks })
    })
  )
