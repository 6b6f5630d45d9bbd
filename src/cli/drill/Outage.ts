/** The drill `outage`: the broker is away under load. Orders are taken and paid, the backlog grows, no attempt is burnt, and it drains after. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"
import { broker } from "./Breakages.ts"
import type { Steps } from "./Ground.ts"

/** Enough to see a backlog, and few enough for seconds on a slow machine. */
const orderCount = 24
const customers = 4

/** How long the broker stays away after the load: some attempts of each partition. */
const awayMillis = 4_000

const counts = Rows.one(Schema.Struct({ queued: Schema.Int, burnt: Schema.Int }))

export const outage: Steps = Effect.fnUntraced(function* (ground) {
  const { applied, health, hurt, orders, pay, place, run, teller, url } = ground
  const { tell, until } = teller
  const bar = (queued: number) =>
    `  ${"█".repeat(Math.round((queued / (2 * orderCount)) * 24)).padEnd(24, "·")} ${queued}`
  /** Of this drill: what waits, and what has been counted against an event. */
  const count = Effect.flatMap(orders, (ids) =>
    run(
      Effect.flatMap(SqlClient.SqlClient, (sql) =>
        counts(sql`
          SELECT (SELECT count(*) FROM outbox_events WHERE aggregate_id = ANY(${[...ids]}::text[]))::int4 AS queued,
                 ((SELECT count(*) FROM outbox_holds WHERE aggregate_id = ANY(${[...ids]}::text[]))
                  + (SELECT count(*) FROM outbox_dead_letters WHERE aggregate_id = ANY(${[...ids]}::text[])))::int4 AS burnt`)
      )
    )
  )

  const mend = yield* hurt(broker)
  yield* tell("breaks", "The broker is away: each of its tables has another name, so every send and every fetch fails.")
  yield* tell("does", `${customers} customers place and pay ${orderCount} orders meanwhile.`, `${url}/console/orders`)
  yield* Effect.forEach(Array.from({ length: orderCount }), () => Effect.flatMap(place(), (id) => pay(id)), {
    concurrency: customers,
    discard: true
  })
  yield* Effect.sleep(awayMillis)
  const away = yield* count
  const status = yield* health
  yield* tell(
    "sees",
    `All of them are paid. ${away.queued} events wait in the queue, and ${away.burnt} have an attempt counted against them: an outage is not ` +
      `the event's fault. The service says that it is ${status}, and takes orders.`,
    `${url}/console`
  )
  yield* mend
  yield* tell("mends", "The broker is back.")
  let queued = away.queued
  yield* until(
    "the backlog to drain",
    Effect.map(count, (now) => (queued = now.queued) === 0),
    () => bar(queued)
  )
  for (const id of yield* orders) yield* applied(id, 2)
  const after = yield* count
  return [
    // A process without dispatcher and consumers asks no broker, and stays ready.
    [`the service was ${status} while the broker was away, and not unready`, status !== "unready"],
    [`${away.queued} events waited while the broker was away: all of them`, away.queued === 2 * orderCount],
    [`${away.burnt + after.burnt} events had an attempt counted against them`, away.burnt + after.burnt === 0]
  ]
})
