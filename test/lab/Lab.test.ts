/** More than a thousand cases of the failure lab. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer, Result } from "effect"
import { TestDatabase } from "../support/TestDatabase.ts"
import { decode, encode } from "./Case.ts"
import { LabDatabase } from "./LabDatabase.ts"
import { mistakes } from "./mistakes/index.ts"
import { readTokens } from "./Pages.ts"
import { run } from "./Scheduler.ts"
import { partsOf, search } from "./Search.ts"
import { systematic } from "./Systematic.ts"

/** The systematic cases and some generated ones, a minute on an idle machine. `npm run lab` runs without end. */
const cases = systematic.length + 25
/** The same cases in each run of the tests, so that a failure comes from the code and not from the draw. */
const seed = 2026
/** Far above the time of all cases on an idle machine. */
const timeoutMillis = 3_600_000

const database = Layer.unwrap(TestDatabase.useSync(({ url }) => LabDatabase.layer(url))).pipe(
  Layer.provide(TestDatabase.layer)
)

const caseOf = (token: string | undefined) => {
  const decoded = decode(token ?? "")
  if (Result.isFailure(decoded)) throw new Error(decoded.failure)
  return decoded.success.input
}

layer(database, { excludeTestServices: true })("failure lab", (it) => {
  it.effect(
    `${systematic.length} systematic and ${cases - systematic.length} generated cases hold`,
    () =>
      Effect.gen(function* () {
        const found = yield* search({ cases, seed })
        if (found !== undefined) {
          assert.fail(
            `\n${found.outcome.story.print(found.violation)}\nnpm run replay -- ${encode(undefined, found.input)}`
          )
        }
      }),
    timeoutMillis
  )

  it.effect(
    "the same token tells the same story ten times",
    () =>
      Effect.gen(function* () {
        const tokens = yield* Effect.promise(readTokens)
        for (const mistake of mistakes) {
          const stories = new Set<string>()
          for (let time = 0; time < 10; time++) {
            const { story, violation } = yield* run(caseOf(tokens[mistake.name]), partsOf(mistake))
            stories.add(story.print(violation))
          }
          assert.strictEqual(stories.size, 1, mistake.name)
        }
      }),
    timeoutMillis
  )
})
