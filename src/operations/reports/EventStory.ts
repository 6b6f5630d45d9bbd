/** The story of an event: its attempts, the decisions about it and its further steps, in the order of time. */
import { Schema } from "effect"
import { isoTime } from "../../platform/IsoTime.ts"

/** A step of a story. */
export const Step = Schema.Struct({
  at: Schema.String,
  what: Schema.String,
  /** The operator who did it. */
  by: Schema.optionalKey(Schema.String)
})
export type Step = typeof Step.Type

/** A failed attempt, as holds keep it. */
export const Attempt = Schema.Struct({ attempt: Schema.Int, at: Schema.String, error: Schema.String })

/** An operator's decision, as the audit has it. */
export const Decision = Schema.Struct({
  at: Schema.String,
  actor: Schema.String,
  action: Schema.String,
  reason: Schema.String
})

/** Decisions of one event or task that are shown: the last ones. */
const auditLimit = 20

/** SQL: the last decisions about a subject as a JSON array, the oldest first. `subjectId` is an expression. */
export const decisionsOf = (subject: string, subjectId: string): string => `
  (SELECT coalesce(json_agg(json_build_object('at', ${isoTime("a.at")}, 'actor', a.actor, 'action', a.action, 'reason', a.reason) ORDER BY a.audit_id), '[]')
   FROM (SELECT * FROM operator_audit WHERE subject = '${subject}' AND subject_id = ${subjectId} ORDER BY audit_id DESC LIMIT ${auditLimit}) AS a)`

/**
 * The story of failed attempts, decisions and further steps; a step without a time is left out. Of steps of equal times the first of the further steps is
 * told before the attempts, and the others of them after the attempts.
 */
export const make = (
  attempts: ReadonlyArray<typeof Attempt.Type>,
  attemptWas: string,
  decisions: ReadonlyArray<typeof Decision.Type>,
  [first, ...others]: ReadonlyArray<Omit<Step, "at"> & { readonly at: string | null }>
): ReadonlyArray<Step> =>
  [
    ...(first === undefined ? [] : [first]),
    ...attempts.map(({ at, attempt, error }) => ({ at, what: `attempt ${attempt} ${attemptWas}: ${error}` })),
    ...others,
    ...decisions.map(({ action, actor, at, reason }) => ({ at, what: `${action}: ${reason}`, by: actor }))
  ]
    .flatMap((step) => (step.at === null ? [] : [{ ...step, at: step.at }]))
    .toSorted((one, other) => (one.at < other.at ? -1 : one.at > other.at ? 1 : 0))
