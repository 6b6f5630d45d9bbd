/** The groups of events and consumers: the search of everything that was written, and how far its readers are. */
import { Schema } from "effect"
import { HttpApi, HttpApiGroup, OpenApi } from "effect/http-api"
import { eventTypes } from "../../domain/Events.ts"
import * as ConsumerReport from "../../operations/reports/ConsumerReport.ts"
import { Found } from "../../operations/reports/EventSearch.ts"
import { DeliveryState } from "../../operations/History.ts"
import { Details } from "../../operations/reports/OutboxReport.ts"
import { FilterText, oneOf, pageOf, pageQuery, reading, SecondsText } from "./AdminParts.ts"
import { EventIdText } from "./OutboxApi.ts"

const text = Schema.optionalKey(FilterText)

export const EventsApi = HttpApiGroup.make("adminEvents")
  .add(
    reading("search", "/admin/events", {
      query: {
        eventId: Schema.optionalKey(EventIdText),
        orderId: text,
        customerId: text,
        traceId: text,
        type: Schema.optionalKey(oneOf(eventTypes)),
        topic: text,
        status: Schema.optionalKey(oneOf(DeliveryState.literals)),
        untilSeconds: Schema.optionalKey(SecondsText),
        ...pageQuery(EventIdText)
      },
      success: pageOf(Found.annotate({ identifier: "FoundEvent" }), "FoundEventPage"),
      summary: "Search events, wherever they are",
      description:
        "In the queue, behind a refused one, dead or published. Without the id of an event or order it needs `sinceSeconds`. A page may be empty and " +
        "have a `nextCursor`: it looks at a bounded number of events."
    }),
    reading("event", "/admin/events/:id", {
      params: { id: EventIdText },
      success: Details.annotate({ identifier: "OutboxEventDetails" }),
      summary: "Get an event: its payload, its headers and its story"
    })
  )
  .annotateEndpoints(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotateMerge(OpenApi.annotations({ title: "Admin: events", description: "Everything that was written." }))

export const ConsumersApi = HttpApiGroup.make("adminConsumers")
  .add(
    reading("list", "/admin/consumers", {
      success: Schema.Struct({ items: Schema.Array(ConsumerReport.Entry) }).annotate({ identifier: "Consumers" }),
      summary: "List consumers: what waits, and how far each is behind",
      description: "`lag` is null where the broker does not answer, and `unknown` says why."
    })
  )
  .annotateMerge(OpenApi.annotations({ title: "Admin: consumers", description: "What reads events." }))
