/** The example that swaps the broker, over a real Kafka. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { inject } from "vitest"
import { TestDatabase } from "../support/TestDatabase.ts"
import { runExample } from "./runExample.ts"

const brokers = inject("kafkaBrokers")
if (brokers === null) {
  const missing = `none of examples/SwapTheBroker.test.ts ran (the minimal example over Kafka): ${inject("kafkaMissing")}`
  if (process.env["CI"] === "true") throw new Error(missing)
  process.stderr.write(`SKIPPED: ${missing}\n`)
}

describe.skipIf(brokers === null)("swapping the broker", () => {
  it.live("the minimal service runs over Kafka with one other layer, and the embedded broker gets no event", () =>
    Effect.gen(function* () {
      const { name, url } = yield* TestDatabase.make("template0")
      const printed = yield* runExample("swap-the-broker.ts", {
        DATABASE_URL: Redacted.value(url),
        KAFKA_BROKERS: brokers ?? "",
        KAFKA_PREFIX: `${name}.`
      })
      assert.include(printed, "The subscriber saw 3 deposits, 60 in all.\n")
      assert.include(printed, "The events went through Kafka: 0 of them are in the embedded broker's log.\n")
    })
  )
})
