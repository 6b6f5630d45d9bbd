/** Shared by the lab's programs: their own Postgres, the mistakes by name, and command-line flags. */
import { Cause, Effect, Exit, Layer, Redacted, References } from "effect"
import * as Postgres from "../support/Postgres.ts"
import { LabDatabase } from "./LabDatabase.ts"
import { mistakes } from "./mistakes/index.ts"
import type { Mistake } from "./mistakes/Mistake.ts"

/** A migrated database on a Postgres that lives as long as the program. */
const layerDatabase = Layer.unwrap(
  Effect.gen(function* () {
    const url = yield* Postgres.acquire
    const name = yield* Postgres.migrated(url)
    return LabDatabase.layer(Redacted.make(Postgres.withDatabase(url, name)))
  })
)

/** Runs a program of the lab; its result is the exit code. Ctrl-C ends it, and the Postgres that it started. */
export const main = async (program: Effect.Effect<number, never, LabDatabase>): Promise<void> => {
  const running = new AbortController()
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => running.abort())
  const exit = await Effect.runPromiseExit(
    program.pipe(
      Effect.provide(layerDatabase),
      Effect.provideService(References.MinimumLogLevel, "Error"),
      Effect.scoped,
      Effect.orDie
    ),
    { signal: running.signal }
  )
  if (Exit.isFailure(exit) && !running.signal.aborted) console.error(Cause.pretty(exit.cause))
  // 130 is a shell's exit code for Ctrl-C. `process.exit` is needed: an interrupted case leaves fibers that wait for ever.
  process.exit(Exit.isSuccess(exit) ? exit.value : running.signal.aborted ? 130 : 1)
}

/** Ends the program with a message if it was given an unknown flag. */
export const allowFlags = (...names: ReadonlyArray<string>): void => {
  const unknown = process.argv.find((text) => text.startsWith("--") && !names.includes(text.slice(2)))
  if (unknown !== undefined) refuse(`${unknown} is not one of ${names.map((name) => `--${name}`).join(", ")}`)
}

const refuse = (sentence: string): never => {
  console.error(sentence)
  process.exit(2)
}

/** The number behind `--name`, if it is given. */
export const flagNumber = (name: string): number | undefined => {
  const text = flag(name)
  return text === undefined || /^\d{1,9}$/.test(text)
    ? text === undefined
      ? undefined
      : Number(text)
    : refuse(`--${name} takes a whole number, and not "${text}"`)
}

/** The text behind `--name`, if it is given. */
export const flag = (name: string): string | undefined => {
  const at = process.argv.indexOf(`--${name}`)
  return at < 0 ? undefined : process.argv[at + 1]
}

/** The mistake of that name, undefined for `undefined`. Ends the program with a message if there is no such mistake. */
export const mistakeNamed = (name: string | undefined): Mistake | undefined => {
  if (name === undefined) return undefined
  const found = mistakes.find((mistake) => mistake.name === name)
  if (found !== undefined) return found
  console.error(`there is no mistake "${name}"; there are: ${mistakes.map((mistake) => mistake.name).join(", ")}`)
  process.exit(2)
}
