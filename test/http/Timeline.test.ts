/** The timeline of an order once retention has dropped a part of it. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import * as Maintenance from "../../src/operations/Maintenance.ts"
import { Queue } from "../../src/outbox/Queue.ts"
import * as DatabaseClock from "../support/DatabaseClock.ts"
import { publishAll } from "../support/Published.ts"
import { type Answer, newOrder, send, service } from "./Service.ts"

layer(Layer.provideMerge(Queue.layer, service), { excludeTestServices: true })("Timeline", (it) => {
  it.effect("is complete until retention has dropped events of the order, and says so from then on", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      yield* DatabaseClock.install
      const { json: order } = yield* send(`${url}/orders`, { body: newOrder })
      yield* publishAll
      const timeline = Effect.map(send(`${url}/orders/${order.id}/timeline`), ({ json }) => ({
        complete: json.complete,
        events: json.events.map((event: { type: string; delivery: { state: string } }) => [
          event.type,
          event.delivery.state
        ])
      }))
      assert.deepStrictEqual(yield* timeline, { complete: true, events: [["OrderPlaced", "published"]] })
      yield* DatabaseClock.advance("5 days")
      const paid = yield* send(`${url}/orders/${order.id}/pay`, {
        body: { paymentMethod: "pm_ok" },
        headers: { "idempotency-key": "days-later" }
      })
      assert.strictEqual(paid.status, 200)
      yield* Maintenance.runOnce()
      assert.deepStrictEqual(yield* timeline, { complete: false, events: [["OrderPaid", "queued"]] })
      yield* publishAll
      assert.deepStrictEqual(yield* timeline, { complete: false, events: [["OrderPaid", "published"]] })
    })
  )

  it.effect("says what a consumer has made of an event: applied, tried again, waiting, or given up", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const sql = yield* SqlClient.SqlClient
      /** An order with two events, as the consumer holds it: its head's state, what is parked behind it, and what is no longer tried. */
      const held = Effect.fnUntraced(function* (given: {
        readonly hold?: "retrying" | "gap" | "dead"
        readonly parked?: ReadonlyArray<1 | 2>
        readonly buried?: "dead" | "discarded"
        readonly applied?: boolean
        readonly skipped?: boolean
        /** At the outbox. */
        readonly discarded?: boolean
      }) {
        const { json: order } = yield* send(`${url}/orders`, { body: newOrder })
        const headers = { "idempotency-key": `held-${order.id}` }
        yield* send(`${url}/orders/${order.id}/pay`, { body: { paymentMethod: "pm_ok" }, headers })
        const read = Effect.map(
          send(`${url}/orders/${order.id}/timeline`),
          ({ json }) =>
            json.events as ReadonlyArray<{ readonly eventId: string; readonly consumers: Record<string, string> }>
        )
        const [first, second] = (yield* read).map(({ eventId }) => eventId)
        if (given.applied === true) {
          yield* sql`INSERT INTO processed_events VALUES ('analytics', ${first!}::uuid, clock_now())`
        }
        if (given.discarded === true) {
          yield* sql`
            WITH moved AS (DELETE FROM outbox_events WHERE event_id = ${first!}::uuid RETURNING *)
            INSERT INTO outbox_dead_letters SELECT moved.*, 'discarded', 10, 'refused', '[]', clock_now() FROM moved`
        }
        if (given.skipped === true) {
          yield* sql`
            INSERT INTO operator_audit (at, actor, action, reason, subject, subject_id, before, after)
            VALUES (clock_now(), 'ada', 'skip', 'it is gone', 'inbox event', ${`analytics ${second}`}, '{"version": 0}', '{"version": 1}')`
        }
        if (given.buried !== undefined) {
          yield* sql`
            INSERT INTO inbox_dead_letters (consumer_name, aggregate_id, position, event_id, topic, broker_partition, broker_offset,
                                            record_headers, parked_at, status, attempts, history, ended_at)
            VALUES ('analytics', ${order.id}, 1, ${first!}, 'orders', 0, 1, '{}', clock_now(), ${given.buried}, 10, '[]', clock_now())`
        }
        if (given.hold !== undefined) {
          const due = given.hold === "retrying" ? sql`clock_now()` : sql`NULL`
          yield* sql`
            INSERT INTO inbox_holds (consumer_name, aggregate_id, topic, event_id, status, attempts, next_attempt_at, held_at)
            VALUES ('analytics', ${order.id}, 'orders', ${given.hold === "gap" ? second! : first!}, ${given.hold}, 1, ${due}, clock_now())`
        }
        for (const version of given.parked ?? []) {
          yield* sql`
            INSERT INTO inbox_parked (consumer_name, aggregate_id, position, event_id, topic, broker_partition, broker_offset,
                                      record_headers, parked_at)
            VALUES ('analytics', ${order.id}, ${version}, ${version === 1 ? first! : second!}, 'orders', 0, ${version}, '{}', clock_now())`
        }
        return (yield* read).map(({ consumers }) => consumers["analytics"])
      })
      assert.deepStrictEqual(yield* held({}), ["pending", "pending"])
      assert.deepStrictEqual(yield* held({ applied: true }), ["applied", "pending"])
      assert.deepStrictEqual(yield* held({ hold: "retrying", parked: [1, 2] }), ["retrying", "parked"])
      assert.deepStrictEqual(yield* held({ applied: true, hold: "gap", parked: [2] }), ["applied", "parked"])
      assert.deepStrictEqual(yield* held({ buried: "dead", hold: "dead", parked: [2] }), ["dead", "parked"])
      assert.deepStrictEqual(yield* held({ buried: "discarded" }), ["discarded", "pending"])
      assert.deepStrictEqual(yield* held({ skipped: true }), ["discarded", "pending"])
      assert.deepStrictEqual(yield* held({ skipped: true, applied: true }), ["applied", "pending"])
      assert.deepStrictEqual(yield* held({ discarded: true }), ["discarded", "pending"])
      // A send whose answer was lost.
      assert.deepStrictEqual(yield* held({ discarded: true, applied: true }), ["applied", "pending"])
    })
  )

  it.effect("comes in pages of a hundred versions, however often a payment was declined", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const sql = yield* SqlClient.SqlClient
      const { json: order } = yield* send(`${url}/orders`, { body: newOrder })
      for (let attempt = 0; attempt < 3; attempt++) {
        const headers = { "idempotency-key": `declined-${attempt}` }
        yield* send(`${url}/orders/${order.id}/pay`, { body: { paymentMethod: "pm_declined" }, headers })
      }
      yield* publishAll
      // As if it had been declined 247 times more.
      yield* sql`
        WITH moved AS (UPDATE orders SET version = version + 247 WHERE id = ${order.id}::uuid)
        INSERT INTO event_log
        SELECT (jsonb_populate_record(e, jsonb_build_object('event_id', gen_random_uuid(), 'aggregate_version', 4 + n))).*
        FROM event_log AS e, generate_series(1, 247) AS n WHERE e.aggregate_id = ${order.id} AND e.aggregate_version = 4`
      const seen: Array<number> = []
      let cursor: number | null = 0
      do {
        const { json }: Answer = yield* send(`${url}/orders/${order.id}/timeline?cursor=${cursor}`)
        assert.isTrue(json.complete)
        assert.isAtMost(json.events.length, 100)
        seen.push(...json.events.map(({ version }: { readonly version: number }) => version))
        cursor = json.nextCursor
      } while (cursor !== null)
      assert.deepStrictEqual(
        seen,
        Array.from({ length: 251 }, (_, index) => index + 1)
      )
      for (const query of ["cursor=-1", "cursor=0x1", "cursor=9999999999", "cursor=", "cursor=1.5", "page=2"]) {
        assert.strictEqual((yield* send(`${url}/orders/${order.id}/timeline?${query}`)).status, 400, query)
      }
    })
  )
})
