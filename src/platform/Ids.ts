/**
 * Ids of events, orders, payments and tasks: UUIDs of version 7 (RFC 9562, section 5.7), which begin with a time in milliseconds.
 *
 * They are drawn here and not by a SQL function, which would cost more than the INSERT of an event. Their time is still the database's. It is the
 * database's clock at the last sample, plus the time elapsed on this machine's monotonic clock. The control connection samples with each heartbeat.
 * The layer takes the first sample, before anything can draw.
 *
 * An id that is a little behind or ahead of the database's clock is harmless:
 *
 * - `event_log` and `processed_events` are partitioned by the id's day. The id alone picks the partition, so a row is found where it was written,
 *   whatever the clock says. Partitions exist for yesterday and for days ahead.
 * - Retention drops a partition an hour late (`DailyPartitions`). A query for a range of time adds {@link skewInterval} on each side.
 * - An event's order is its aggregate's version and its lane's sequence, never its id. Its time is `occurredAt`, which the INSERT takes from the
 *   database.
 *
 * After a failover to a server whose clock differs, ids keep the old server's time until the next heartbeat, like the ids drawn just before. A
 * machine that was suspended likewise draws ids of the past until then.
 */
import { Clock, Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import * as Monotonic from "./Monotonic.ts"
import { RandomUuid } from "./RandomUuid.ts"
import * as Rows from "./Rows.ts"

/**
 * The largest difference that readers allow between an id's time and the time of the statement that wrote it. Heartbeats are seconds apart, and a
 * statement that waits for a lock gives up within seconds.
 */
export const skewInterval = "1 hour"

/**
 * Ids never fall behind the last one of this process while the database's clock is set back by no more than this. After a longer step they follow
 * the database: else a server whose clock was a year ahead would leave its time in all later ids.
 */
export const longestStandstillMillis = 60_000

/** Of the 12 bits that count within a millisecond. A count begins in the lower half, so that there is room above (RFC 9562, section 6.2). */
const counterLimit = 4_096

/** Asks for the database's time, for {@link Ids}. One row with one column. */
export const timeQuery = "SELECT (extract(epoch FROM clock_now()) * 1000)::float8 AS millis"

const decodeSample = Rows.one(Schema.Struct({ millis: Schema.Finite }))

export class Ids extends Context.Service<
  Ids,
  {
    /** A new UUID version 7. Greater than all that this process has drawn before, see {@link longestStandstillMillis}. */
    readonly next: () => string
    /** Takes the database's time from `ask`, which runs {@link timeQuery} on a connection of the caller's. */
    readonly sampleBy: (
      ask: Effect.Effect<ReadonlyArray<unknown>, SqlError.SqlError>
    ) => Effect.Effect<void, SqlError.SqlError>
    /** Takes the database's time on a connection of the pool. */
    readonly sample: Effect.Effect<void, SqlError.SqlError>
  }
>()("paid-once/platform/Ids") {
  /** Ready once it has taken the database's time. */
  static readonly layer: Layer.Layer<Ids, SqlError.SqlError, SqlClient.SqlClient> = Layer.effect(
    Ids,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const clock = yield* Clock.Clock
      const now = () => Monotonic.millisUnsafe(clock)
      const { learn, next } = generator(now, yield* RandomUuid)

      const sampleBy = Effect.fnUntraced(function* (ask: Effect.Effect<ReadonlyArray<unknown>, SqlError.SqlError>) {
        const askedMillis = now()
        const { millis } = yield* decodeSample(ask)
        // The answer was made somewhere between the question and now.
        learn(millis, (askedMillis + now()) / 2)
      })

      const sample = sampleBy(sql.unsafe(timeQuery))
      yield* sample
      return Ids.of({ next, sampleBy, sample })
    })
  )
}

/** The rule of {@link Ids}, over any monotonic clock and any source of UUIDs of version 4. Draws nothing of use before it has learned a time. */
export const generator = (monotonicMillis: () => number, drawUuid: () => string) => {
  /** How far the database's clock is ahead of the monotonic one. */
  let aheadMillis = 0
  let lastMillis = -Infinity
  let counter = 0

  /** The database's clock said `databaseMillis` when the monotonic one said `atMillis`. */
  const learn = (databaseMillis: number, atMillis: number): void => {
    aheadMillis = databaseMillis - atMillis
  }

  const next = (): string => {
    const random = drawUuid()
    const millis = Math.floor(monotonicMillis() + aheadMillis)
    if (millis > lastMillis || millis < lastMillis - longestStandstillMillis) {
      lastMillis = millis
      counter = parseInt(random.slice(15, 18), 16) % (counterLimit / 2)
    } else if (++counter === counterLimit) {
      // Full: the next millisecond is used up before its time.
      lastMillis++
      counter = 0
    }
    return format(lastMillis, counter, random)
  }

  return { learn, next }
}

/** The UUID of version 7 with this time and count, and the variant and the last 62 bits of `random`, a UUID of version 4. */
const format = (millis: number, counter: number, random: string): string => {
  const time = millis.toString(16).padStart(12, "0")
  return `${time.slice(0, 8)}-${time.slice(8)}-7${counter.toString(16).padStart(3, "0")}${random.slice(18)}`
}
