/**
 * Whether orders can be written. A full disk, or a server that was set to read only, still answers `SELECT 1`.
 *
 * A request that failed by an outage of the database raises a doubt. Then a fiber writes a row and rolls it back, every second until that
 * succeeds. In between this process is unready. The log tells of the outage, and not of each request (platform/Outages.ts).
 */
import { Context, Effect, Latch, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import * as DatabaseOutage from "../platform/DatabaseOutage.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import { type Outage, Outages } from "../platform/Outages.ts"
import * as Supervised from "../platform/Supervised.ts"
import { HealthParts, type PartReport } from "./Health.ts"

/** Eight pages: no free space in a page that is already there takes it. */
const probeBytes = 65_536

/** A request that came before the end is noticed is told to come back after two seconds. */
const probeMillis = 1_000

/** An INSERT takes a millisecond; a connection that has to be opened first, some more. */
const probeTimeoutMillis = 5_000

/** The fiber stamps its progress this often while there is nothing to probe. */
const napMillis = Supervised.stuckAfterMillis / 4

/** The name of what an outage stops, in the log. */
const part = "requests"

/** Told by each request that failed by an outage. Without {@link layer} nobody listens. */
export const WriteProbe = Context.Reference<{ readonly doubt: Effect.Effect<void> }>("paid-once/http/WriteProbe", {
  defaultValue: () => ({ doubt: Effect.void })
})

const undone = Symbol("undone")

const silence: Outage = {
  subject: "the database",
  reason: `no answer to a write in ${probeTimeoutMillis} ms`,
  kind: "silence"
}

/** Writes a row and rolls it back. Returns why that was not possible, or undefined. */
const probe = (sql: SqlClient.SqlClient): Effect.Effect<Outage | undefined, unknown> =>
  sql
    .withTransaction(
      Effect.andThen(sql`INSERT INTO write_probe VALUES (repeat('x', ${probeBytes}::int4))`, Effect.fail(undone))
    )
    .pipe(
      Effect.catchIf(
        (error) => error === undone,
        () => Effect.undefined
      ),
      Effect.catchIf(
        (error): error is SqlError.SqlError => DatabaseOutage.isOutage(error),
        (error) => Effect.succeed(DatabaseOutage.outageOf(error))
      ),
      Effect.timeoutOrElse({ duration: probeTimeoutMillis, orElse: () => Effect.succeed(silence) })
    )

export const layer: Layer.Layer<never, never, HealthParts | SqlClient.SqlClient | Supervised.Fibers> = Layer.effect(
  WriteProbe,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const outages = yield* Outages
    const doubted = yield* Latch.make(false)
    let sinceMillis: number | undefined

    yield* Supervised.forkLoop("write-probe", (stamp) =>
      Effect.gen(function* () {
        yield* Effect.raceFirst(doubted.await, Effect.forever(Effect.andThen(Effect.sleep(napMillis), stamp)))
        yield* doubted.close
        const found = yield* probe(sql)
        if (found === undefined) {
          sinceMillis = undefined
          return yield* outages.recovered(part)
        }
        sinceMillis ??= yield* Monotonic.millis
        yield* outages.failed(part, found)
        yield* Effect.sleep(probeMillis)
        yield* doubted.open
      })
    )

    const report = Effect.map(Monotonic.millis, (now): PartReport =>
      sinceMillis === undefined
        ? { status: "ready" }
        : { status: "unready", sinceSeconds: Math.round((now - sinceMillis) / 1_000) }
    )
    yield* (yield* HealthParts).add({ name: "writes", report })

    return { doubt: Effect.asVoid(doubted.open) }
  })
)
