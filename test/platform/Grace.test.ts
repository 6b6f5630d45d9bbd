/** The parts of a stop share one grace. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Grace from "../../src/platform/Grace.ts"

it.effect(
  "a part that ends by itself has its whole time; once the process stops, each part leaves time to the later ones",
  () =>
    Effect.gen(function* () {
      const left = yield* Grace.make
      assert.strictEqual(left("slices", 60_000), 60_000)
      Grace.begin()
      const parts = (["requests", "slices", "groups", "tasks"] as const).map((part) => left(part, 60_000))
      assert.deepStrictEqual(
        parts.toSorted((a, b) => a - b),
        parts
      )
      assert.isBelow(parts.at(-1)!, 10_000)
      assert.isAtMost(left("slices", 1), 1)
      // A second signal does not start a new grace.
      Grace.begin()
      assert.isAtMost(left("requests", 60_000), parts[0]!)
    }).pipe(
      Effect.ensuring(Effect.sync(Grace.takeBack)),
      Effect.provideService(Grace.GraceSettings, { graceMillis: 10_000 })
    )
)
