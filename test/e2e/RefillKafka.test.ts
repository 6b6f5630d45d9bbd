import { describe } from "@effect/vitest"
import { inject } from "vitest"
import { refillBesideService } from "./Refill.ts"
import * as Targets from "./Targets.ts"

const brokers = inject("kafkaBrokers")
if (brokers === null) {
  const missing = `none of e2e/RefillKafka.test.ts ran (a refill from a real Kafka): ${inject("kafkaMissing")}`
  if (process.env["CI"] === "true") throw new Error(missing)
  process.stderr.write(`SKIPPED: ${missing}\n`)
}

describe.skipIf(brokers === null)("beside a real Kafka", () => {
  refillBesideService("with a real Kafka", () => Targets.kafka(brokers ?? ""))
})
