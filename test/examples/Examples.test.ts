/** The examples, run by the command in their page, each in a process of its own. Their output is the expected one. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { readdirSync, readFileSync } from "node:fs"
import * as Path from "node:path"
import { inject } from "vitest"
import { root, TestDatabase } from "../support/TestDatabase.ts"
import { runExample } from "./runExample.ts"

const examples = readdirSync(Path.join(root, "examples")).filter((name) => name.endsWith(".ts"))
const page = readFileSync(Path.join(root, "examples/README.md"), "utf8")

/** Runs an example on an empty database, with an empty KAFKA_BROKERS. */
const onEmptyDatabase = (name: string) =>
  Effect.flatMap(TestDatabase.make("template0"), ({ url }) => runExample(name, { DATABASE_URL: Redacted.value(url) }))

describe("examples", () => {
  it("the page names each example's command", () => {
    const missing = examples.filter((name) => !page.includes(`npm run example examples/${name}`))
    // These files are parts of the examples, and no examples.
    assert.deepStrictEqual(missing, ["Location.ts"])
  })

  it.live("the minimal outbox: a subscriber sees what three transactions wrote", () =>
    Effect.gen(function* () {
      assert.include(yield* onEmptyDatabase("minimal-outbox.ts"), "The subscriber saw 3 deposits, 60 in all.\n")
    })
  )

  it.live(
    "the subscriber: each event is applied once though it was sent twice, and the unreadable one is a dead letter",
    () =>
      Effect.gen(function* () {
        const printed = yield* onEmptyDatabase("subscriber.ts")
        assert.include(printed, "The topic has 6 records of 3 events.\n")
        assert.include(printed, "The good parcel is in Paris after 2 scans.\n")
        assert.include(printed, 'Dead letter, version 1: Expected string at ["place"]\n')
      })
  )

  it.live(
    "the task: its second run succeeds, and a transaction that rolled back left none; on a Postgres of its own",
    () =>
      Effect.gen(function* () {
        const printed = yield* runExample("task.ts", {})
        assert.include(printed, "Ada was welcomed by run 2 of her task.\n")
        assert.include(printed, "Bob's transaction rolled back: 0 tasks for him.\n")
      })
  )

  it.live("swapping the broker: without a Kafka it says how to get one", () =>
    Effect.gen(function* () {
      assert.strictEqual(
        yield* runExample("swap-the-broker.ts", {}),
        "KAFKA_BROKERS names no Kafka. npm run kafka starts one and prints its address.\n"
      )
    })
  )

  it.live("the failure case: two crashes lose nothing and double nothing, and the mistake loses an event", () =>
    Effect.gen(function* () {
      const printed = yield* runExample("failure-case.ts", { TEST_DATABASE_URL: inject("postgresUrl") })
      const [correct = "", mistaken = ""] = printed.split("\n\n")
      // Version 1 is sent twice because the first mark never came; each version has its effect once.
      assert.match(correct, /topic: A1 A1 A2 · effects: A1 A2\n/)
      assert.match(correct, /\nAll invariants hold\.$/)
      assert.include(mistaken, "BROKEN: first deliveries come in version order, without gaps.")
    })
  )
})
