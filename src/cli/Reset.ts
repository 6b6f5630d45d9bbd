/** `paid-once reset`: deletes what the service keeps under the data directory. Refused while a living process uses it. */
import { Console, Effect, Schema } from "effect"
import { Command } from "effect/cli"
import { lstat, readdir, readFile, rm, rmdir } from "node:fs/promises"
import * as Path from "node:path"
import * as Config from "../Config.ts"
import { resetEmbedded } from "../main/Storage.ts"
import * as OwnDirectory from "../platform/OwnDirectory.ts"
import * as PidFile from "../platform/PidFile.ts"

/** A living process uses the data. */
export class StillInUse extends Schema.TaggedError<StillInUse>()("StillInUse", {
  path: Schema.String,
  pid: Schema.String
}) {
  override get message() {
    return `${this.path} is in use by process ${this.pid}: stop it first, then reset`
  }
}

/** Something could not be deleted. */
export class ResetFailed extends Schema.TaggedError<ResetFailed>()("ResetFailed", {
  path: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `can't clear ${this.path}: ${this.reason}`
  }
}

/** The first process whose command line names `path`; a local Kafka's does. */
const userOf = async (path: string) => {
  const pids = (await readdir("/proc").catch(() => [])).filter((name) => /^\d+$/.test(name))
  for (const pid of pids) {
    // The process may have ended meanwhile.
    const commandLine = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")
    if (commandLine.includes(path)) return pid
  }
  return undefined
}

/**
 * The names that are ours in each directory; the top comes last. Others may stand there: DATA_DIRECTORY may be a directory that holds more
 * than our data, even a person's mail.
 */
const ours: ReadonlyArray<readonly [directory: string, isOurs: RegExp]> = [
  ["kafka", /^node-\d+$/],
  // FileTransport.ts names a mail after its task.
  ["mail", /^[0-9a-f-]{36}@.*\.eml(\.part)?$/],
  ["", /^(service(-\d+)?\.pid|lock)$/]
]

const exists = (path: string) =>
  lstat(path).then(
    () => true,
    () => false
  )

/** The directories that are ours; DATA_DIRECTORY is not. */
const directories = ["postgres", "kafka", "mail"]

/** Those in whose place there is a link. It leads to a directory that may be anybody's. */
const linksIn = async (directory: string): Promise<ReadonlyArray<string>> => {
  const isLink = (name: string) =>
    lstat(Path.join(directory, name)).then(
      (found) => found.isSymbolicLink(),
      () => false
    )
  const found = await Promise.all(directories.map(isLink))
  return directories.filter((_, index) => found[index])
}

/** Deletes what is ours in `directory`, and then the directories that are empty. Returns what it deleted, from the top. */
const clear = async (directory: string): Promise<ReadonlyArray<string>> => {
  const cleared: Array<string> = []
  for (const [name, isOurs] of ours) {
    const parent = Path.join(directory, name)
    // Not behind a link: it leads to a foreign directory.
    const found = (await lstat(parent).catch(() => undefined))?.isDirectory() === true ? await readdir(parent) : []
    const names = found.filter((entry) => isOurs.test(entry))
    for (const entry of names) await rm(Path.join(parent, entry), { recursive: true, force: true })
    if (names.length > 0) cleared.push(...(name === "" ? names.filter((entry) => entry !== "lock") : [name]))
  }
  for (const name of directories) await rmdir(Path.join(directory, name)).catch(() => {})
  return cleared
}

/** The command. */
export const reset = Command.make(
  "reset",
  {},
  Effect.fnUntraced(function* () {
    const config = yield* Config.load
    const { dataDirectory } = config
    const attempt = <A>(step: () => Promise<A>) =>
      Effect.tryPromise({
        try: step,
        catch: (error) => new ResetFailed({ path: dataDirectory, reason: (error as Error).message })
      })
    if (!(yield* attempt(() => exists(dataDirectory)))) return yield* Console.log(`There is no ${dataDirectory}.`)
    yield* attempt(() => OwnDirectory.check(dataDirectory))
    const kafka = Path.join(dataDirectory, "kafka")
    const user = yield* attempt(() => userOf(kafka))
    if (user !== undefined) return yield* new StillInUse({ path: kafka, pid: user })
    const [service] = yield* attempt(() => PidFile.living(dataDirectory))
    if (service !== undefined) return yield* new StillInUse({ path: dataDirectory, pid: String(service) })
    const links = yield* attempt(() => linksIn(dataDirectory))
    const postgres = !links.includes("postgres") && (yield* attempt(() => exists(Path.join(dataDirectory, "postgres"))))
    if (postgres) yield* resetEmbedded(config)
    const others = yield* attempt(() => clear(dataDirectory))
    const cleared = [...(postgres ? ["postgres"] : []), ...others]
    yield* Console.log(
      cleared.length === 0
        ? `There was nothing to clear in ${dataDirectory}.`
        : `Cleared ${cleared.join(", ")} in ${dataDirectory}.`
    )
    if (links.length > 0) {
      yield* Console.log(`Left ${links.join(", ")} in ${dataDirectory}: a link is not followed.`)
    }
  })
)
