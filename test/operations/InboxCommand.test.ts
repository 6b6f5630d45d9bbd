/** `paid-once inbox …` as an operator runs it, beside a running service. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { isDeepStrictEqual } from "node:util"
import { table } from "../../src/cli/Operator.ts"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { ordersTopic } from "../../src/domain/Events.ts"
import { Broker } from "../../src/brokers/Broker.ts"
import { laneOf, partitionOf } from "../../src/outbox/Lane.ts"
import { eventually } from "../support/Counters.ts"
import { order as makeOrder } from "../support/Subscribed.ts"
import { commandOf, Directory, environmentWith } from "../support/OperatorCommand.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const environment = environmentWith({})
const run = commandOf("inbox", environment)

const world = TestProcess.broker.pipe(
  Layer.provideMerge(TestProcess.platform),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(Directory.layer),
  Layer.provideMerge(TestProcess.quiet)
)

const get = (url: string) =>
  Effect.promise(async () => {
    const response = await fetch(url)
    return { status: response.status, text: await response.text() }
  })

it("a row of a list is one line, whatever the error in it says", () => {
  assert.deepStrictEqual(
    table([
      ["EVENT", "LAST ERROR"],
      ["1", 'Missing key\n  at ["a"]\tand more']
    ]),
    ["EVENT  LAST ERROR", '1      Missing key at ["a"] and more']
  )
})

it.live(
  "unreadable, unknown and missing events, from the alarm to the decision, through the commands, health and metrics",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const broker = yield* Broker
      yield* broker.ensureTopic(ordersTopic, 8)
      const send = (key: string, ...values: ReadonlyArray<string>) =>
        Effect.forEach(values, (text) =>
          broker.publish({
            topic: ordersTopic,
            partition: partitionOf(laneOf(key), 8),
            records: [{ key, headers: {}, value: new TextEncoder().encode(text) }]
          })
        )
      const one = makeOrder()
      const two = makeOrder()
      const [placed, paid] = [one.placed(), one.paid()]
      yield* send(one.id, JSON.stringify(placed), "{broken", JSON.stringify(paid))
      const early = [two.placed(), two.paid(), two.refunded()]
      // The payment itself never comes.
      yield* send(two.id, JSON.stringify(early[0]), JSON.stringify(early[2]))
      const service = yield* ServiceProcess.start({ env: yield* environment })
      const url = service.url!
      const waiting = Effect.map(
        sql<{ readonly holds: number }>`SELECT count(*)::int4 AS holds FROM inbox_holds`,
        ([row]) => row?.holds ?? 0
      )
      yield* eventually(
        "every consumer to hold both",
        Effect.map(waiting, (holds) => holds === 8)
      )

      const listed = yield* run("list", "--consumer", "billing", "--json")
      assert.strictEqual(listed.code, 0, listed.stderr)
      const { items } = JSON.parse(listed.stdout) as { readonly items: ReadonlyArray<Record<string, unknown>> }
      const dead = items.find(({ status }) => status === "dead")!
      const gap = items.find(({ status }) => status === "gap")!
      assert.include(dead, { consumer: "billing", aggregateId: one.id, eventType: null })
      assert.include(gap, { eventId: early[2]!.eventId, lastError: "version 2 of its aggregate has not come" })
      assert.include((yield* run("list")).stdout, "unreadable")

      // A missing event is an alarm. A dead letter waits for an operator.
      yield* eventually(
        "health to report it",
        Effect.map(get(`${url}/health/ready`), ({ text }) => {
          const { parts, status } = JSON.parse(text) as {
            readonly status: string
            readonly parts: { readonly inbox: { readonly consumers?: Record<string, unknown> } }
          }
          // A part that does not answer in time has no details.
          return (
            status === "degraded" &&
            isDeepStrictEqual(parts.inbox.consumers?.["billing"], { retrying: 0, parked: 1, dead: 1, gaps: 1 })
          )
        })
      )
      yield* eventually(
        "the metrics to show it",
        Effect.map(get(`${url}/metrics`), ({ text }) =>
          [
            'inbox_gaps{consumer="billing"} 1',
            'inbox_dead_letters{consumer="billing"} 1',
            'inbox_parked{consumer="billing"} 2',
            'inbox_lag{consumer="billing"} 0',
            'inbox_lag_seconds{consumer="billing"} 0',
            'inbox_events_total{consumer="billing",outcome="dead"} 1'
          ].every((line) => text.includes(line))
        )
      )

      // An empty list for a misspelt name would look as if nothing were held.
      for (const args of [["list"], ["retry", "--reason", "a typo"]]) {
        const misspelt = yield* run(...args, "--consumer", "biling")
        assert.strictEqual(misspelt.code, 2)
        assert.include(misspelt.stderr, "there is no consumer biling: they are receipts, inventory, billing, analytics")
      }
      const retried = yield* run(
        "retry",
        "--consumer",
        "billing",
        "--type",
        "OrderRefunded",
        "--reason",
        "of one consumer"
      )
      assert.include(retried.stdout, "Retrying 0 events.", retried.stderr)

      const unknown = yield* run("discard", "billing", "01a1fd40-8529-7dad-b578-b9cd784ada98", "--reason", "no")
      assert.strictEqual(unknown.code, 1)
      assert.include(unknown.stderr, "has nothing called")
      assert.strictEqual((yield* run("retry", "--reason", "which one?")).code, 2)
      assert.strictEqual((yield* run("discard", "billing", String(dead["eventId"]))).code, 2, "no reason")
      for (const consumer of ["billing", "analytics"]) {
        const discarded = yield* run(
          "discard",
          consumer,
          String(dead["eventId"]),
          "--reason",
          "somebody's test",
          "--by",
          "ada"
        )
        assert.strictEqual(discarded.code, 0, discarded.stderr)
        const skipped = yield* run("skip", consumer, String(gap["eventId"]), "--reason", "booked by hand")
        assert.strictEqual(skipped.code, 0, skipped.stderr)
      }
      yield* eventually(
        "two of the four to hold nothing any more",
        Effect.map(waiting, (holds) => holds === 4)
      )
      const [audit] = yield* sql<{ readonly discards: number; readonly skips: number; readonly by: number }>`
        SELECT count(*) FILTER (WHERE action = 'discard')::int4 AS discards, count(*) FILTER (WHERE action = 'skip')::int4 AS skips,
               count(*) FILTER (WHERE actor = 'ada')::int4 AS by
        FROM operator_audit WHERE subject = 'inbox event'`
      assert.deepStrictEqual(audit, { discards: 2, skips: 2, by: 2 })
      const ledger = yield* sql<{ readonly id: string }>`SELECT event_id::text AS id FROM billing_ledger`
      assert.sameMembers(
        ledger.map(({ id }) => id),
        [paid.eventId, early[2]!.eventId]
      )
      assert.include((yield* run("list", "--consumer", "billing")).stdout, "None.")
      yield* service.signal("SIGTERM")
      assert.strictEqual(yield* service.exit, 0)
    }).pipe(Effect.scoped, Effect.provide(world)),
  // A dozen commands run here, each in a process of its own.
  300_000
)
