/** Single cases of the failure lab: each planted mistake is caught by its stored case, and a few cases show one behaviour each. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer, Result } from "effect"
import { TestDatabase } from "../support/TestDatabase.ts"
import { decode } from "./Case.ts"
import { LabDatabase } from "./LabDatabase.ts"
import { mistakes } from "./mistakes/index.ts"
import { pageOf, pathOf, readTokens } from "./Pages.ts"
import { run } from "./Scheduler.ts"
import { partsOf } from "./Search.ts"
import { readFile } from "node:fs/promises"

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

layer(database, { excludeTestServices: true })("single cases", (it) => {
  it.effect(
    "writers of one order wait for each other, and the one that waits goes on by itself",
    () =>
      Effect.gen(function* () {
        // Two declines. The first one idles before its COMMIT while it locks the order's row.
        const input = caseOf("L1.none.1.p0:0-l0:0-r0:0-r1:0-t0:0.")
        const { story, violation } = yield* run(input, partsOf(undefined))
        assert.isUndefined(violation)
        assert.include(story.print(undefined), "waits for a lock")
      }),
    timeoutMillis
  )

  it.effect(
    "a frozen dispatcher that wakes after its successor duplicates and never overtakes",
    () =>
      Effect.gen(function* () {
        // The first dispatcher freezes before its send. Another one sends that event and the next, and then the first one thaws.
        const { story, violation } = yield* run(caseOf("L1.none.1.f3:3-p0:0-d0:0-r0:0-t0:0."), partsOf(undefined))
        assert.isUndefined(violation)
        assert.match(story.print(undefined), /topic: A1 A2 A1/)
      }),
    timeoutMillis
  )

  it.effect(
    "days that are dropped in the middle of a batch change neither the delivered events nor their order",
    () =>
      Effect.gen(function* () {
        const told = (upkeep: string, gate: number) =>
          Effect.map(
            // A dispatcher with two events freezes at that gate, two days pass, and it thaws.
            run(caseOf(`L1.none.1.o0:0-p0:0-r0:0-f3:${gate}-o1:0-D0:0-D0:0${upkeep}-t0:0-r0:0.`), partsOf(undefined)),
            ({ story, violation }) => {
              assert.isUndefined(violation)
              const text = story.print(undefined)
              return { text, delivered: text.match(/topic: [^·\n]*/g)?.at(-1) }
            }
          )
        for (const gate of [2, 4, 6]) {
          const without = yield* told("", gate)
          const upkeep = yield* told("-N1:0", gate)
          assert.include(upkeep.text, "drops a day")
          assert.strictEqual(upkeep.delivered, without.delivered)
        }
      }),
    timeoutMillis
  )
})

layer(database, { excludeTestServices: true })("planted mistakes", (it) => {
  for (const mistake of mistakes) {
    it.effect(
      `${mistake.name} is caught by its stored case, which holds without it`,
      () =>
        Effect.gen(function* () {
          const token = (yield* Effect.promise(readTokens))[mistake.name]
          const input = caseOf(token)
          const planted = yield* run(input, partsOf(mistake))
          assert.isDefined(planted.violation)
          const page = yield* Effect.promise(() => readFile(pathOf(mistake), "utf8"))
          assert.strictEqual(page, pageOf(mistake, token!, planted), "npm run mistakes -- --write")
          assert.isUndefined((yield* run(input, partsOf(undefined))).violation)
        }),
      timeoutMillis
    )
  }
})
