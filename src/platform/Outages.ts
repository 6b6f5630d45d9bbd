/**
 * Failures of what a service depends on: its database, its broker. They are retried for ever, by many loops at once, and are told apart from mistakes:
 * by a sentence, without a stack.
 */
import { Cause, Context, Effect, Inspectable } from "effect"

/** What an error says about something that this process depends on. */
export interface Outage {
  /** What is out of service, as the subject of a sentence: `the broker`. All failures of one subject are one outage. */
  readonly subject: string
  /** Why, for the person who has to act. */
  readonly reason: string
  /** The details of a reason may differ with each attempt; its kind does not. Default: the subject has one kind. */
  readonly kind?: string
}

/** The property of an error that tells its {@link Outage}. */
export const outage = Symbol.for("paid-once/platform/Outage")

/** The outage that an error tells, if any. */
export const of = (error: unknown): Outage | undefined =>
  typeof error === "object" && error !== null && outage in error
    ? (error as { readonly [outage]: Outage | undefined })[outage]
    : undefined

/** The outage that a failure tells, if any. */
export const ofCause = (cause: Cause.Cause<unknown>): Outage | undefined => of(Cause.squash(cause))

/** What went wrong, in one line. */
export const reasonOf = (error: unknown): string =>
  error instanceof Error ? error.message : Inspectable.toStringUnknown(error)

/** Whom outages are reported to. By default each failure is a line of the log; `operations/OutageLog.ts` writes one a minute. */
export const Outages = Context.Reference<{
  /** `part` of this process has failed, and will try again: a fiber, a partition that is published to. */
  readonly failed: (part: string, outage: Outage) => Effect.Effect<void>
  /** `part` works. May be called for each success. */
  readonly recovered: (part: string) => Effect.Effect<void>
}>("paid-once/platform/Outages", {
  defaultValue: () => ({
    failed: (part, { reason, subject }) => Effect.logWarning(`${part}: ${subject} is unavailable: ${reason}`),
    recovered: () => Effect.void
  })
})
