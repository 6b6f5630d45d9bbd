/** The group of the inbox: events that a consumer could not apply. */
import { Schema } from "effect"
import { HttpApi, HttpApiGroup, OpenApi } from "effect/http-api"
import { shortText } from "../../domain/Text.ts"
import { Redriven } from "../../operations/DeadLetters.ts"
import { Handled } from "../../operations/InboxDeadLetters.ts"
import { Cause, Cursor, Details, Entry, State, Status } from "../../operations/reports/InboxReport.ts"
import {
  bulkBody,
  causesOf,
  causesQuery,
  deciding,
  eventFilter,
  FilterText,
  oneOf,
  pageOf,
  pageQuery,
  PreviewAnswer,
  reading,
  ReasonBody,
  since
} from "./AdminParts.ts"
import { DiscardAnswer } from "./OutboxApi.ts"

const filter = { consumer: Schema.optionalKey(FilterText), ...eventFilter }

/** A consumer's event. A record that can't be read is named `topic:partition:offset`, and so by as much as a topic's name. */
const params = {
  consumer: FilterText,
  eventId: shortText(600).annotate({
    description: "The event's id, or topic:partition:offset of a record that can't be read"
  })
}

/** The body of `POST /admin/inbox/dead-letters/retry` and `/discard`. */
export const InboxRetryBody = bulkBody({ ...filter, ...since }, "RetryInboxDeadLetters")

const handled = { params, payload: ReasonBody, success: Handled.annotate({ identifier: "HandledInboxEvent" }) }

export const InboxApi = HttpApiGroup.make("adminInbox")
  .add(
    reading("list", "/admin/inbox/dead-letters", {
      query: { status: Schema.optionalKey(oneOf(State.literals)), ...filter, ...pageQuery(Cursor) },
      success: pageOf(Entry.annotate({ identifier: "InboxEvent" }), "InboxEventPage"),
      summary: "List events that a consumer has not applied",
      description:
        "Without `status` those that wait for themselves: dead, gap and retrying. `parked` waits behind them."
    }),
    reading("status", "/admin/inbox", {
      success: Schema.Struct({ items: Schema.Array(Status.annotate({ identifier: "InboxStatus" })) }).annotate({
        identifier: "InboxStatuses"
      }),
      summary: "Count each consumer's waiting events by state"
    }),
    reading("show", "/admin/inbox/dead-letters/:consumer/:eventId", {
      params,
      success: Details.annotate({ identifier: "InboxEventDetails" }),
      summary: "Get all that is known of an event at a consumer: its payload, its headers and its story"
    }),
    reading("causes", "/admin/inbox/causes", {
      query: { ...filter, ...causesQuery },
      success: causesOf(Cause.annotate({ identifier: "InboxCause" }), "InboxCauses"),
      summary: "Group events that fail at a consumer by cause"
    }),
    deciding("retryAll", "/admin/inbox/dead-letters/retry", {
      payload: InboxRetryBody,
      success: Schema.Union([
        Schema.Struct({ preview: Schema.Literal(false), ...Redriven.fields }).annotate({
          identifier: "DeadLettersRetried"
        }),
        PreviewAnswer
      ]),
      summary: "Try all dead letters that match again",
      description:
        "Those that are dead when it begins, the oldest first. An empty filter takes all. `preview: true` says what it would do, and changes nothing."
    }),
    deciding("discardAll", "/admin/inbox/dead-letters/discard", {
      payload: InboxRetryBody,
      success: DiscardAnswer,
      summary: "Give all dead letters that match up, each for its consumer",
      description: "As `retry` of all; the rest of their aggregates goes on. This is final."
    }),
    deciding("retry", "/admin/inbox/dead-letters/:consumer/:eventId/retry", {
      ...handled,
      summary: "Try an event again",
      description: "A dead letter goes back in front of its aggregate. An event that is being retried becomes due now."
    }),
    deciding("discard", "/admin/inbox/dead-letters/:consumer/:eventId/discard", {
      ...handled,
      summary: "Give an event up for this consumer",
      description: "The rest of its aggregate goes on. This is final."
    }),
    deciding("skip", "/admin/inbox/dead-letters/:consumer/:eventId/skip", {
      ...handled,
      summary: "Go on without the versions that have not come",
      description: "For an event with the status `gap`. Should the missing versions still come, they are not applied."
    })
  )
  .annotateEndpoints(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotateMerge(OpenApi.annotations({ title: "Admin: inbox", description: "Events that a consumer could not apply." }))
