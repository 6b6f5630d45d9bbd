import { describe } from "@effect/vitest"
import { Effect } from "effect"
import { inject } from "vitest"
import { stopping } from "./Stop.ts"
import * as Targets from "./Targets.ts"

const brokers = inject("kafkaBrokers")
if (brokers === null) {
  const missing = `none of e2e/StopKafka.test.ts ran (stopping and taking over with a real Kafka): ${inject("kafkaMissing")}`
  if (process.env["CI"] === "true") throw new Error(missing)
  process.stderr.write(`SKIPPED: ${missing}\n`)
}

describe.skipIf(brokers === null)("with a real Kafka", () => {
  stopping(
    "Kafka",
    Effect.sync(() => Targets.kafka(brokers ?? ""))
  )
})
