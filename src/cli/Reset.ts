/** `paid-once reset`: deletes the data under the data directory. Refused while a living process uses it. */
import { Console, Effect, Schema } from "effect"
import { Command } from "effect/cli"
import { readdir, readFile, rm } from "node:fs/promises"
import * as Path from "node:path"
import * as Config from "../Config.ts"
import * as Main from "../main.ts"

/** A living process uses the data. */
export class StillInUse extends Schema.TaggedError<StillInUse>()("StillInUse", {
  path: Schema.String,
  pid: Schema.String
}) {
  override get message() {
    return `${this.path} is in use by process ${this.pid}: stop it first, then reset`
  }
}

/** The first process whose command line names `path`; a local Kafka's does. */
const userOf = (path: string) =>
  Effect.promise(async () => {
    const pids = (await readdir("/proc").catch(() => [])).filter((name) => /^\d+$/.test(name))
    for (const pid of pids) {
      // The process may have ended meanwhile.
      const commandLine = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")
      if (commandLine.includes(path)) return pid
    }
    return undefined
  })

/** The command. */
export const reset = Command.make(
  "reset",
  {},
  Effect.fnUntraced(function* () {
    const config = yield* Config.load
    const { dataDirectory } = config
    const kafka = Path.join(dataDirectory, "kafka")
    const user = yield* userOf(kafka)
    if (user !== undefined) return yield* new StillInUse({ path: kafka, pid: user })
    yield* Main.resetEmbedded(config)
    for (const name of ["postgres", "kafka", "service.pid"]) {
      yield* Effect.promise(() => rm(Path.join(dataDirectory, name), { recursive: true, force: true }))
    }
    yield* Console.log(`Cleared ${dataDirectory}.`)
  })
).pipe(Command.withDescription("Clear the data of the embedded Postgres and of npm run kafka"))
