import { describe } from "@effect/vitest"
import { Effect } from "effect"
import { inject } from "vitest"
import { endToEnd } from "./EndToEnd.ts"
import * as Targets from "./Targets.ts"

const brokers = inject("kafkaBrokers")
if (brokers === null) {
  const missing = `none of e2e/Kafka.test.ts ran (the whole path over a real Kafka): ${inject("kafkaMissing")}`
  if (process.env["CI"] === "true") throw new Error(missing)
  process.stderr.write(`SKIPPED: ${missing}\n`)
}

describe.skipIf(brokers === null)("with a real Kafka", () => {
  endToEnd(
    "Kafka",
    Effect.sync(() => Targets.kafka(brokers ?? ""))
  )
})
