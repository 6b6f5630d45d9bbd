/** An operator's pauses: each is one transaction with its row in `operator_audit`, and reaches all processes after the commit. */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as OperatorAudit from "../../platform/OperatorAudit.ts"
import * as Rows from "../../platform/Rows.ts"
import { Transaction } from "../../platform/Transaction.ts"
import { Wakeups } from "../../platform/Wakeups.ts"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Pauses from "./Pauses.ts"

/** What can be paused, by its name. */
export interface Target {
  readonly kind: Pauses.Kind
  readonly name: string
}

/** The state after a decision. `changed` is false where it was in this state before, and nothing was written. */
export const Decided = Schema.Struct({
  kind: Pauses.Kind,
  name: Schema.String,
  status: Schema.Literals(["paused", "running"]),
  changed: Schema.Boolean
})
export type Decided = typeof Decided.Type

const changedRow = Rows.first(Schema.Struct({ pausedAt: Schema.String, actor: Schema.String, reason: Schema.String }))

/** Pauses and resumes. Repeating a decision changes nothing. */
export class PauseDecisions extends Context.Service<
  PauseDecisions,
  {
    /** From now on nothing new begins there. What is under way ends. */
    readonly pause: (target: Target, operator: OperatorAudit.Operator) => Effect.Effect<Decided>
    /** It goes on where it stopped. */
    readonly resume: (target: Target, operator: OperatorAudit.Operator) => Effect.Effect<Decided>
    /** All that is paused, as the table has it now. */
    readonly all: Effect.Effect<ReadonlyArray<Pauses.Pause>>
  }
>()("paid-once/operations/PauseDecisions") {
  static readonly layer: Layer.Layer<PauseDecisions, never, PgClient.PgClient | Wakeups> = Layer.effect(
    PauseDecisions,
    Effect.gen(function* () {
      const client = yield* PgClient.PgClient
      const wakeups = yield* Wakeups

      const decide = (action: "pause" | "resume") =>
        Effect.fn(`PauseDecisions.${action}`)(
          function* ({ kind, name }: Target, operator: OperatorAudit.Operator) {
            const { afterCommit, sql } = yield* Transaction
            const columns = sql.literal(`${isoTime("paused_at")} AS "pausedAt", actor, reason`)
            const changed = yield* changedRow(
              action === "pause"
                ? sql`INSERT INTO operator_pauses (kind, name, paused_at, actor, reason)
                      VALUES (${kind}, ${name}, clock_now(), ${operator.actor}, ${operator.reason})
                      ON CONFLICT DO NOTHING RETURNING ${columns}`
                : sql`DELETE FROM operator_pauses WHERE (kind, name) = (${kind}, ${name}) RETURNING ${columns}`
            )
            const status = action === "pause" ? ("paused" as const) : ("running" as const)
            if (changed === undefined) return { kind, name, status, changed: false }
            const paused = { status: "paused", since: changed.pausedAt, by: changed.actor, reason: changed.reason }
            const running = { status: "running" }
            yield* OperatorAudit.record({
              ...operator,
              action,
              subject: kind,
              subjectId: name,
              ...(action === "pause" ? { before: running, after: paused } : { before: paused, after: running })
            })
            yield* afterCommit(
              Effect.andThen(
                wakeups.send(Pauses.subject, [kind]),
                OperatorAudit.log(operator, `${action} of ${kind} ${name}`)
              )
            )
            return { kind, name, status, changed: true }
          },
          (effect) => Effect.provideService(Transaction.run(effect), PgClient.PgClient, client)
        )

      return PauseDecisions.of({
        pause: decide("pause"),
        resume: decide("resume"),
        all: Effect.orDie(Effect.provideService(Pauses.read, SqlClient.SqlClient, client))
      })
    })
  )
}
