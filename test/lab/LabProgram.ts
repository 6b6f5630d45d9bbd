/** What the lab's programs share: a Postgres of their own, the mistakes by name, and flags. */
import { Effect, Layer, Redacted, References } from "effect"
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

/** Runs a program of the lab; its number is the exit code. */
export const main = async (program: Effect.Effect<number, never, LabDatabase>): Promise<void> => {
  process.exitCode = await Effect.runPromise(
    program.pipe(
      Effect.provide(layerDatabase),
      Effect.provideService(References.MinimumLogLevel, "Error"),
      Effect.scoped,
      Effect.orDie
    )
  )
}

/** The text behind `--name`, if it is given. */
export const flag = (name: string): string | undefined => {
  const at = process.argv.indexOf(`--${name}`)
  return at < 0 ? undefined : process.argv[at + 1]
}

/** The mistake of that name, none for `undefined`; ends the program with a sentence when there is no such mistake. */
export const mistakeNamed = (name: string | undefined): Mistake | undefined => {
  if (name === undefined) return undefined
  const found = mistakes.find((mistake) => mistake.name === name)
  if (found !== undefined) return found
  console.error(`there is no mistake "${name}"; there are: ${mistakes.map((mistake) => mistake.name).join(", ")}`)
  process.exit(2)
}
