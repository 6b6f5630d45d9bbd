/** How long finished things are kept. */
import { Context } from "effect"

/**
 * How long published events, applied marks and finished tasks are kept, in days of 24 hours; 0 keeps them for ever.
 *
 * Statements count hours: an interval of days has an hour less in a session whose time zone changes to summer time.
 */
export const RetentionSettings = Context.Reference<{
  /** Published events in `event_log`, for timelines and replay. */
  readonly outboxDays: number
  /** `processed_events`: at least as long as a topic can deliver an event again, which TopicChecks sees to. */
  readonly inboxDays: number
  /** Tasks that are completed or cancelled, with their idempotency keys. */
  readonly taskDays: number
}>("paid-once/platform/RetentionSettings", {
  // A topic that keeps seven days and rolls its segments daily has a record for up to eight: the inbox remembers as long.
  defaultValue: () => ({ outboxDays: 3, inboxDays: 8, taskDays: 30 })
})
