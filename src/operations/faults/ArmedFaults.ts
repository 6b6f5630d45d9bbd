/**
 * Faults that an operator of a test system arms in running processes. The table is the truth: a process that runs with FAULTS=on follows it
 * (FollowedFaults.ts), any other ignores it.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { type Catalogue, check, Fault, FaultAction, FaultImpossible } from "../../platform/FaultInjection.ts"
import { describe, type FaultPointUnknown } from "../../platform/FaultInjection.ts"
import type { FaultPoint } from "../../platform/Faults.ts"
import { isoTime } from "../../platform/IsoTime.ts"
import * as OperatorAudit from "../../platform/OperatorAudit.ts"
import * as Rows from "../../platform/Rows.ts"
import * as SlotOwners from "../../platform/SlotOwners.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { Wakeups } from "../../platform/Wakeups.ts"

/** The subject of the wake-up after a change of the table. */
export const subject = "faults"

/** The group of the processes that follow the table (Ownership.ts). It has no slots: membership alone tells who listens. */
export const followers = "faults"

/** An armed fault: where, what happens, and how many strikes are left over all processes. */
export const Armed = Schema.Struct({
  point: Schema.String,
  action: FaultAction,
  times: Schema.Int,
  delayMillis: Schema.Int,
  armedAt: Schema.String,
  actor: Schema.String,
  reason: Schema.String
})
export type Armed = typeof Armed.Type

/** A strike of an armed fault. `process` is `pid@host`. */
export const Strike = Schema.Struct({
  point: Schema.String,
  action: FaultAction,
  delayMillis: Schema.Int,
  at: Schema.String,
  process: Schema.String
})
export type Strike = typeof Strike.Type

/** No living process takes faults: none would strike. */
export class FaultsOff extends Schema.TaggedError<FaultsOff>()("FaultsOff", {}) {
  override get message() {
    return "no running process takes faults: start those that are to fail with FAULTS=on"
  }
}

/** The state of a point after a decision. `changed` is false where it was so before, and nothing was written. */
export const Decided = Schema.Struct({
  point: Schema.String,
  status: Schema.Literals(["armed", "clear"]),
  changed: Schema.Boolean
})
export type Decided = typeof Decided.Type

/** More than a program has points. */
const faultLimit = 1_000

/** As many strikes as a person reads. */
const shownStrikes = 100

const columns = `point, action, times, delay_millis AS "delayMillis", ${isoTime("armed_at")} AS "armedAt", actor, reason`

const allStrikes = Rows.all(Strike)
const allArmed = Rows.all(Armed)
const firstArmed = Rows.first(Armed)

/** All armed faults, as the table has them now. */
export const read = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  allArmed(sql`SELECT ${sql.literal(columns)} FROM armed_faults ORDER BY point LIMIT ${faultLimit}`)
)

/** The newest strikes, the last one first. */
const readStrikes = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  allStrikes(sql`
    SELECT point, action, delay_millis AS "delayMillis", ${sql.literal(isoTime("at"))} AS at, process
    FROM fault_strikes ORDER BY strike_id DESC LIMIT ${shownStrikes}`)
)

const inWords = (fault: Armed | undefined) =>
  fault === undefined ? { status: "clear" } : { status: "armed", fault: describe(fault.point as FaultPoint, fault) }

export class ArmedFaults extends Context.Service<
  ArmedFaults,
  {
    /** Every point of this program, with the actions that mean something there. */
    readonly known: ReadonlyArray<{ readonly point: FaultPoint; readonly actions: ReadonlyArray<FaultAction> }>
    /** Armed faults, the processes that follow (`pid@host`), and the newest strikes, the last one first. */
    readonly list: Effect.Effect<{
      readonly faults: ReadonlyArray<Armed>
      readonly processes: ReadonlyArray<string>
      readonly strikes: ReadonlyArray<Strike>
    }>
    /** Arms the point in all processes that follow, in the place of what was armed there. The same fault once more changes nothing. */
    readonly set: (
      point: string,
      fault: Fault,
      operator: OperatorAudit.Operator
    ) => Effect.Effect<Decided, FaultPointUnknown | FaultImpossible | FaultsOff>
    readonly clear: (
      point: string,
      operator: OperatorAudit.Operator
    ) => Effect.Effect<Decided, FaultPointUnknown | FaultImpossible>
  }
>()("paid-once/operations/ArmedFaults") {
  /** Over the points that the program has. */
  static readonly layer = (known: Catalogue): Layer.Layer<ArmedFaults, never, PgClient.PgClient | Wakeups> =>
    Layer.effect(
      ArmedFaults,
      Effect.gen(function* () {
        const client = yield* PgClient.PgClient
        const wakeups = yield* Wakeups
        const onClient = <A, E>(effect: Effect.Effect<A, E, SqlClient.SqlClient>) =>
          Effect.provideService(effect, SqlClient.SqlClient, client)
        const processes = onClient(SlotOwners.members(followers))

        /** Puts `fault` in the place of what is armed at the point, in one transaction with its row in the audit. */
        const decide = Effect.fnUntraced(
          function* (point: FaultPoint, fault: Fault | undefined, operator: OperatorAudit.Operator) {
            const { afterCommit, sql } = yield* Transaction
            const was = yield* firstArmed(
              sql`SELECT ${sql.literal(columns)} FROM armed_faults WHERE point = ${point} FOR UPDATE`
            )
            const isSame =
              fault === undefined
                ? was === undefined
                : was !== undefined && describe(point, was) === describe(point, fault)
            const status = fault === undefined ? ("clear" as const) : ("armed" as const)
            if (isSame) return { point, status, changed: false }
            yield* sql`DELETE FROM armed_faults WHERE point = ${point}`
            const is =
              fault &&
              (yield* firstArmed(sql`
                INSERT INTO armed_faults (point, action, times, delay_millis, armed_at, actor, reason)
                VALUES (${point}, ${fault.action}, ${fault.times}, ${fault.delayMillis}, clock_now(), ${operator.actor}, ${operator.reason})
                RETURNING ${sql.literal(columns)}`))
            yield* OperatorAudit.record({
              ...operator,
              action: fault === undefined ? "clear" : "arm",
              subject: "fault point",
              subjectId: point,
              before: inWords(was),
              after: inWords(is)
            })
            const done =
              is === undefined ? `the fault at ${point} is cleared` : `a fault is armed: ${describe(point, is)}`
            yield* afterCommit(Effect.andThen(wakeups.send(subject, [point]), OperatorAudit.log(operator, done)))
            return { point, status, changed: true }
          },
          (effect) => Effect.provideService(Transaction.run(effect), PgClient.PgClient, client)
        )

        return ArmedFaults.of({
          known: [...known].map(([point, actions]) => ({ point, actions })),
          list: Effect.orDie(Effect.all({ faults: onClient(read), processes, strikes: onClient(readStrikes) })),
          set: Effect.fn("ArmedFaults.set")(function* (name, fault, operator) {
            const point = yield* Effect.fromResult(check(name, fault.action, known))
            if ((fault.action === "delay") !== fault.delayMillis > 0) {
              const reason =
                fault.action === "delay"
                  ? "needs the milliseconds of the delay"
                  : "takes milliseconds for a delay alone"
              return yield* new FaultImpossible({ point, reason })
            }
            if ((yield* Effect.orDie(processes)).length === 0) return yield* new FaultsOff()
            return yield* decide(point, fault, operator)
          }),
          clear: Effect.fn("ArmedFaults.clear")(function* (name, operator) {
            // Every point can fail: the name alone is looked at.
            const point = yield* Effect.fromResult(check(name, "fail", known))
            return yield* decide(point, undefined, operator)
          })
        })
      })
    )
}
