/** The groups of the outbox: where its events are, and decisions about those that the broker refused. */
import { Schema, SchemaTransformation } from "effect"
import { HttpApi, HttpApiGroup, OpenApi } from "effect/http-api"
import { Handled } from "../../operations/OutboxDeadLetters.ts"
import { Discarded, Redriven } from "../../operations/DeadLetters.ts"
import { Cause, Details, Entry, Listed, Status } from "../../operations/reports/OutboxReport.ts"
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

/** An event's id: a UUID of any version, for a foreign writer may have drawn it. */
export const EventIdText = Schema.String.check(
  Schema.isUUID(undefined, { message: "must be a UUID", description: "The event's id" })
).pipe(Schema.decode(SchemaTransformation.toLowerCase()))

const filter = { topic: Schema.optionalKey(FilterText), ...eventFilter }
const EventPage = pageOf(Entry.annotate({ identifier: "OutboxEvent" }), "OutboxEventPage")

/** The body of `POST /admin/dead-letters/retry` and `/discard`. */
export const RetryBody = bulkBody({ ...filter, ...since }, "RetryDeadLetters")

const RetryAnswer = Schema.Union([
  Schema.Struct({ preview: Schema.Literal(false), ...Redriven.fields }).annotate({ identifier: "DeadLettersRetried" }),
  PreviewAnswer
])

/** The answer of discarding all that match, on either side. */
export const DiscardAnswer = Schema.Union([
  Schema.Struct({ preview: Schema.Literal(false), ...Discarded.fields }).annotate({
    identifier: "DeadLettersDiscarded"
  }),
  PreviewAnswer
])

export const OutboxApi = HttpApiGroup.make("adminOutbox")
  .add(
    reading("status", "/admin/outbox", {
      success: Status.annotate({ identifier: "OutboxStatus" }),
      summary: "Count the outbox's events by state",
      description: "Each count stops at 100000."
    }),
    reading("events", "/admin/outbox/events", {
      query: { status: Schema.optionalKey(oneOf(Listed.literals)), ...filter, ...pageQuery(EventIdText) },
      success: EventPage,
      summary: "List events that are not published",
      description: "Without `status` those that the broker refused: dead and retrying."
    }),
    reading("causes", "/admin/outbox/causes", {
      query: { ...filter, ...causesQuery },
      success: causesOf(Cause.annotate({ identifier: "OutboxCause" }), "OutboxCauses"),
      summary: "Group refused events by cause"
    }),
    reading("event", "/admin/outbox/events/:id", {
      params: { id: EventIdText },
      success: Details.annotate({ identifier: "OutboxEventDetails" }),
      summary: "Get all that is known of an event"
    })
  )
  .annotateEndpoints(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotateMerge(OpenApi.annotations({ title: "Admin: outbox", description: "Where the outbox's events are." }))

export const DeadLettersApi = HttpApiGroup.make("adminDeadLetters")
  .add(
    reading("list", "/admin/dead-letters", {
      query: { ...filter, ...pageQuery(EventIdText) },
      success: EventPage,
      summary: "List events that the broker refused for good"
    }),
    deciding("retryAll", "/admin/dead-letters/retry", {
      payload: RetryBody,
      success: RetryAnswer,
      summary: "Send all dead letters that match again",
      description:
        "Those that are dead when it begins, the oldest first. An empty filter takes all. `preview: true` says what it would do, and changes nothing."
    }),
    deciding("discardAll", "/admin/dead-letters/discard", {
      payload: RetryBody,
      success: DiscardAnswer,
      summary: "Give all dead letters that match up",
      description: "As `retry` of all; the rest of their aggregates goes on. This is final."
    }),
    deciding("retry", "/admin/dead-letters/:id/retry", {
      params: { id: EventIdText },
      payload: ReasonBody,
      success: Handled.annotate({ identifier: "HandledEvent" }),
      summary: "Send a refused event again",
      description: "First in its aggregate, with its id and version. An event that is being retried becomes due now."
    }),
    deciding("discard", "/admin/dead-letters/:id/discard", {
      params: { id: EventIdText },
      payload: ReasonBody,
      success: Handled.annotate({ identifier: "HandledEvent" }),
      summary: "Give a refused event up",
      description: "The rest of its aggregate goes on. This is final."
    })
  )
  .annotateEndpoints(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotateMerge(
    OpenApi.annotations({ title: "Admin: dead letters", description: "Events that the broker refused: decide." })
  )
