/** The small soak of the consumers: each fault once. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Random, References } from "effect"
import * as KafkaSource from "../../support/KafkaSource.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import { soak } from "./ConsumerSoak.ts"

const local = await Effect.runPromise(KafkaSource.decideLocalKafka)
if (local._tag === "Unavailable") {
  const missing = `none of ConsumerSoak.test.ts ran (consumers and brokers that die, freeze and move): ${local.missing}`
  if (process.env.CI === "true") throw new Error(missing)
  console.warn(`SKIPPED: ${missing}`)
}

/** Half a minute; `npm run soak:consumers` has a hundred thousand. */
const events = 6_000

describe.skipIf(local._tag === "Unavailable")("the four subscribers as processes over three brokers", () => {
  it.live(
    "a consumer killed, one frozen past its session, leaders moved, sessions ended: every table is what an independent reader of the topic expects",
    () =>
      Effect.gen(function* () {
        const { url } = yield* TestDatabase.make()
        const report = yield* soak({
          url,
          events,
          consumers: 3,
          poisonEvery: 500,
          blows: { once: ["leaders move", "kill -9", "sessions terminated", "frozen past the session", "leaders move"] }
        })
        assert.isAtLeast(report.poison, 8)
        assert.isAbove(report.parked, 0)
        console.info(JSON.stringify(report))
      }).pipe(Effect.scoped, Random.withSeed(1), Effect.provideService(References.MinimumLogLevel, "Error")),
    300_000
  )
})
