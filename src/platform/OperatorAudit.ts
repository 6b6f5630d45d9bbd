/** The audit of operators' decisions: the operator, the action, the event or task, and the reason. */
import { Effect } from "effect"
import type { SqlError } from "effect/sql"
import { presentable } from "./StorableText.ts"
import { Transaction } from "./Transaction.ts"

/** Who changes something, and why. Both are kept in the audit. */
export interface Operator {
  readonly actor: string
  readonly reason: string
}

/** One decision. `before` and `after` hold what it changed, in words that the operator knows from the commands. */
export interface Entry extends Operator {
  readonly action: string
  /** The kind of thing that was decided about, for example `outbox event`. */
  readonly subject: string
  readonly subjectId: string
  readonly before: Readonly<Record<string, unknown>>
  readonly after: Readonly<Record<string, unknown>>
}

/** The line in the log of an operator's decision: the service is not to be blamed for what follows. */
export const log = ({ actor, reason }: Operator, decision: string): Effect.Effect<void> =>
  Effect.logInfo(`operator ${presentable(actor, 200)}: ${decision}: ${presentable(reason, 500)}`)

/** Writes the entry in the transaction of the decision: neither commits without the other. */
export const record = (entry: Entry): Effect.Effect<void, SqlError.SqlError, Transaction> =>
  Effect.flatMap(Transaction, ({ sql }) =>
    Effect.asVoid(sql`
      INSERT INTO operator_audit (at, actor, action, reason, subject, subject_id, before, after)
      VALUES (clock_now(), ${entry.actor}, ${entry.action}, ${entry.reason}, ${entry.subject}, ${entry.subjectId},
              ${JSON.stringify(entry.before)}::text::jsonb, ${JSON.stringify(entry.after)}::text::jsonb)`)
  )

/** {@link record} of one decision about many things, with an entry for each. */
export const recordEach = (
  entry: Omit<Entry, "subjectId">,
  subjectIds: ReadonlyArray<string>
): Effect.Effect<void, SqlError.SqlError, Transaction> =>
  Effect.flatMap(Transaction, ({ sql }) =>
    Effect.asVoid(sql`
      INSERT INTO operator_audit (at, actor, action, reason, subject, subject_id, before, after)
      SELECT clock_now(), ${entry.actor}, ${entry.action}, ${entry.reason}, ${entry.subject}, id,
             ${JSON.stringify(entry.before)}::text::jsonb, ${JSON.stringify(entry.after)}::text::jsonb
      FROM unnest(${[...subjectIds]}::text[]) AS id`)
  )
