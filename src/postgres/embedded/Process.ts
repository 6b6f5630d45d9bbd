/** Helpers of the embedded Postgres: its error, commands that run as an account, and the state of a process. */
import { Effect, Option, Schema } from "effect"
import { spawn } from "node:child_process"
import { readFile } from "node:fs/promises"

/** A failure of the embedded Postgres. The message names the fault, its place, and the user's remedy. */
export class EmbeddedPostgresError extends Schema.TaggedError<EmbeddedPostgresError>()("EmbeddedPostgresError", {
  reason: Schema.Literals([
    "UnsupportedPlatform", // no binaries for this machine
    "BrokenPackage", // binaries installed, but not runnable
    "NoAccount", // no account on this machine can run Postgres
    "WrongOwner", // the data belongs to an account that this process can't use
    "DataMissing", // a part of the data is gone
    "IncompatibleMajor", // the data is of another major version
    "IncompatibleLayout", // the data is of another version of this service
    "InitFailed",
    "StartFailed",
    "StopFailed",
    "Locked", // another process has held the lock for too long
    "InUse", // reset while living processes use the server
    "FileSystem"
  ]),
  message: Schema.String,
  cause: Schema.optional(Schema.Defect())
}) {}

type Reason = EmbeddedPostgresError["reason"]

/** The account that runs Postgres. In a user namespace it is still this process's user, by another name. */
export type Account =
  | { readonly _tag: "Self" }
  | { readonly _tag: "UserNamespace"; readonly uid: number; readonly gid: number }
  | { readonly _tag: "OtherUser"; readonly uid: number; readonly gid: number }

export const fail = (reason: Reason, message: string, cause?: unknown) =>
  new EmbeddedPostgresError({ reason, message, ...(cause === undefined ? {} : { cause }) })

/** The code of the system's error behind a failure, such as ENOENT. */
export const errorCode = ({ cause }: EmbeddedPostgresError) => (cause as NodeJS.ErrnoException | undefined)?.code

/** A short step, usually on the file system. Its failure names the step. It is not interrupted half-way. */
export const attempt = <A>(doing: string, step: () => Promise<A>, reason: Reason = "FileSystem") =>
  // A promise can't be cancelled: after an interruption it would go on and write after the clean-up.
  Effect.uninterruptible(
    Effect.tryPromise({
      try: step,
      catch: (cause) => fail(reason, `${doing}: ${cause instanceof Error ? cause.message : String(cause)}`, cause)
    })
  )

/** The value of `step`, or undefined where its file does not exist. */
export const whereExists = <A>(doing: string, step: () => Promise<A>) =>
  attempt(doing, () =>
    step().catch((cause: NodeJS.ErrnoException) => {
      if (cause.code === "ENOENT" || cause.code === "ENOTDIR") return undefined
      throw cause
    })
  )

/** The arguments of `spawn` that run `command` as `account`, in a session of its own that a terminal's Ctrl-C does not reach. */
export const spawnArguments = (account: Account, command: string, args: ReadonlyArray<string>) => {
  const mapped =
    account._tag === "UserNamespace"
      ? { command: "unshare", args: [...namespaceFlags(account), "--", command, ...args] }
      : { command, args: [...args] }
  const options = {
    detached: true,
    cwd: "/", // this process's directory may be closed to the account
    // LC_ALL: the messages of Postgres are parsed. No LD_LIBRARY_PATH or PG*: they would override the package's libraries and the settings.
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

/** The child of `start`, or its error. Node reports a missing command by an event, but throws where it may not change the user. */
export const spawned = <A>(start: () => A): A | Error => {
  try {
    return start()
  } catch (cause) {
    return cause instanceof Error ? cause : new Error(String(cause))
  }
}

const outputLimit = 4_000 // characters: the end of initdb's output, which contains the reason, short enough for a log line

/** Runs a command to its end. An interruption kills its process group and waits until no process of it writes any more. */
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
    child.stdin.on("error", () => {}) // it exited without reading: the exit code is the result
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
        // It has already ended, and "close" follows.
      }
    })
  })

/** The state of a process. The start time distinguishes it from a later process with the same pid. */
export interface ProcessStatus {
  readonly command: string
  readonly startedAtTicks: string
}

/** A living process, or none. A zombie counts as dead: in containers, often no parent reaps it. */
export const processStatus = (pid: number): Effect.Effect<Option.Option<ProcessStatus>> =>
  Effect.promise(() => readFile(`/proc/${pid}/stat`, "utf8").catch(() => "")).pipe(
    Effect.map((text) => {
      // The command is in parentheses and may contain any character, so the fields are counted from the last ")".
      const end = text.lastIndexOf(")")
      const fields = text.slice(end + 2).split(" ")
      const [state, startedAtTicks] = [fields[0], fields[19]]
      if (end < 0 || startedAtTicks === undefined || state === "Z" || state === "X") return Option.none()
      return Option.some({ command: text.slice(text.indexOf("(") + 1, end), startedAtTicks })
    })
  )
