import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { retention } from "../Parts.ts"
import type { Mistake } from "./Mistake.ts"

export const dropByDay: Mistake = {
  name: "drop-by-day",
  what: "A day of the archive is dropped when it has been over for as long as events are kept. Nobody looks into it.",
  why:
    "The table is partitioned by the day in the event's id, and that is how partition managers do it: the bounds tell it all, no row is read. " +
    "But the id tells when an event was written, and not when it was published: what waited out an outage is dropped when it has hardly arrived.",
  rule: "A row is old by its own time, and a day is dropped when all of its rows are old.",
  read: "src/operations/DailyPartitions.ts",
  plant: (real) => ({
    upkeep: Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const days = yield* sql<{ readonly day: string }>`
        SELECT child::text AS day FROM time_partitions('event_log')
        WHERE to_time < clock_now() - make_interval(days => ${retention.outboxDays}::int4)`
      yield* Effect.forEach(days, ({ day }) => sql`DROP TABLE IF EXISTS ${sql.literal(day)}`, { discard: true })
      yield* real.upkeep
    })
  })
}
