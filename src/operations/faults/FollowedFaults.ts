/**
 * A process that takes faults follows the table of armed ones (ArmedFaults.ts). Without FAULTS=on there is no {@link FaultControl}, and this layer
 * does nothing.
 *
 * A strike is taken from the table and recorded before it does anything, in one statement outside of any open transaction. A crash and a
 * rollback leave it used up and on record. While the database gives no answer nothing strikes.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Latch, Layer, Option } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { hostname } from "node:os"
import { describe, Fault, FaultControl } from "../../platform/FaultInjection.ts"
import type { FaultPoint } from "../../platform/Faults.ts"
import { Ownership } from "../../platform/Ownership.ts"
import * as Rows from "../../platform/Rows.ts"
import * as Supervised from "../../platform/Supervised.ts"
import { Wakeups } from "../../platform/Wakeups.ts"
import { followers, read, subject } from "./ArmedFaults.ts"

/** A lost wake-up delays a fault by so much. */
const pollMillis = 5_000

/** A point must not hang because the pool is empty: its transaction may hold the last connection. */
const takeMillis = 1_000

/** More than a person reads. A fault that strikes at every request leaves no more than these. */
const keptStrikes = 1_000

const firstFault = Rows.first(Fault)

/** Follows the table for as long as the layer lives. */
export const layer: Layer.Layer<never, never, PgClient.PgClient | Wakeups | Ownership | Supervised.Fibers> =
  Layer.effectDiscard(
    Effect.gen(function* () {
      const control = yield* Effect.serviceOption(FaultControl)
      if (Option.isNone(control)) return
      const client = yield* PgClient.PgClient
      const wakeups = yield* Wakeups
      /** The armed points, each with the time at which it was armed. */
      let armed: ReadonlyMap<string, string> = new Map()

      const refresh = Effect.gen(function* () {
        const now = yield* Effect.orDie(Effect.provideService(read, SqlClient.SqlClient, client))
        const fresh = now.filter(({ armedAt, point }) => armed.get(point) !== armedAt)
        armed = new Map(now.map(({ armedAt, point }) => [point, armedAt]))
        for (const { actor, point, ...fault } of fresh) {
          yield* Effect.logWarning(`a fault is set by ${actor}: ${describe(point as FaultPoint, fault)}`)
        }
      })

      const self = `${process.pid}@${hostname()}`
      /** The fault that `taking` took, if any, with a record of it. */
      const recorded = (point: FaultPoint, taking: Statement.Fragment) =>
        firstFault(client`
          WITH taken AS (${taking}), struck AS (
            INSERT INTO fault_strikes (point, action, delay_millis, at, process)
            SELECT ${point}, action, delay_millis, clock_now(), ${self} FROM taken
          ), forgotten AS (
            DELETE FROM fault_strikes WHERE strike_id <= (SELECT max(strike_id) FROM fault_strikes) - ${keptStrikes}::int8
          )
          SELECT action, 1 AS times, delay_millis AS "delayMillis" FROM taken`)
      /** One strike of what is armed at the point; the last one deletes the row. */
      const takeRow = (point: FaultPoint) =>
        Effect.gen(function* () {
          const last = yield* recorded(
            point,
            client`DELETE FROM armed_faults WHERE point = ${point} AND times = 1 RETURNING action, delay_millis`
          )
          return (
            last ??
            (yield* recorded(
              point,
              client`UPDATE armed_faults SET times = times - 1 WHERE point = ${point} AND times > 1 RETURNING action, delay_millis`
            ))
          )
        })
      const take = (point: FaultPoint) =>
        Effect.suspend(() => {
          if (!armed.has(point)) return Effect.undefined
          return takeRow(point).pipe(
            Effect.timeout(takeMillis),
            Effect.catch((error) =>
              Effect.as(Effect.logWarning(`the fault at ${point} does not strike: ${error.message}`), undefined)
            ),
            Effect.updateContext((context: Context.Context<never>) => Context.omit(client.transactionService)(context))
          )
        })

      const due = yield* Latch.make(false)
      yield* wakeups.on(subject, () => void due.openUnsafe())
      yield* (yield* Ownership).join(followers, 0)
      yield* refresh
      yield* control.value.alsoTake(take)
      yield* Supervised.forkLoop(
        "faults",
        Effect.gen(function* () {
          yield* due.close
          yield* refresh
          yield* Effect.raceFirst(due.await, Effect.sleep(pollMillis))
        })
      )
    })
  )
