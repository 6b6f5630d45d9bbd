/** `paid-once events search|show`: any event that is still known, wherever it is. */
import { Effect, Option, Schema } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { CustomerEvents } from "../application/views/CustomerEvents.ts"
import { eventTypes } from "../domain/Events.ts"
import { consumerNames, topicNames } from "../main/Names.ts"
import { DeliveryState } from "../operations/History.ts"
import { type Details, OutboxReport } from "../operations/reports/OutboxReport.ts"
import {
  ago,
  json,
  knownIfGiven,
  onDatabase,
  pageFilter,
  pageFlags,
  print,
  printPage,
  storyLines,
  table
} from "./Operator.ts"

const Id = Schema.String.check(Schema.isUUID())
const eventId = Argument.String("event-id").pipe(
  Argument.withDescription("the event's id, as `events search` shows it"),
  Argument.withSchema(Id)
)
const id = (name: string, what: string) =>
  Flag.String(name).pipe(Flag.withDescription(`only ${what}`), Flag.withSchema(Id), Flag.optional)

const search = Command.make(
  "search",
  {
    json,
    event: id("event", "the event with this id"),
    order: id("order", "events of the order with this id"),
    customer: Flag.String("customer").pipe(
      Flag.withDescription("only events of this customer's orders"),
      Flag.optional
    ),
    trace: Flag.String("trace").pipe(
      Flag.withDescription("only events of this trace, 32 hexadecimal digits; with --since"),
      Flag.withSchema(Schema.String.check(Schema.isPattern(/^[\da-f]{32}$/i, { message: "32 hexadecimal digits" }))),
      Flag.optional
    ),
    type: Flag.String("type").pipe(
      Flag.withDescription(`only events of this type: ${eventTypes.join(", ")}; with --since`),
      Flag.optional
    ),
    topic: Flag.String("topic").pipe(
      Flag.withDescription(`only events of this topic: ${topicNames.join(", ")}; with --since`),
      Flag.optional
    ),
    status: Flag.Literals("status", DeliveryState.literals).pipe(
      Flag.withDescription("only events in this state"),
      Flag.optional
    ),
    until: ago("until", "only what is older, for example 1h"),
    ...pageFlags(Id)
  },
  Effect.fnUntraced(function* ({ json, limit, ...flags }) {
    const { customer, event, order, status, topic, trace, type, until } = flags
    const { cursor, ...since } = pageFilter(flags)
    const filter = {
      ...since,
      eventId: Option.getOrUndefined(event),
      aggregateIds: Option.isNone(order) ? undefined : [order.value.toLowerCase()],
      customerId: Option.getOrUndefined(customer),
      traceId: Option.isNone(trace) ? undefined : trace.value.toLowerCase(),
      type: yield* knownIfGiven("event type", eventTypes, type),
      topic: yield* knownIfGiven("topic", topicNames, topic),
      status: Option.getOrUndefined(status),
      untilSeconds: Option.getOrUndefined(until)
    }
    const page = yield* onDatabase(CustomerEvents.use((events) => events.search(filter, { limit, cursor })))
    yield* printPage(json, page, ["EVENT", "STATUS", "TYPE", "AGGREGATE", "VERSION", "OCCURRED", "RECORD"], (found) => [
      found.eventId,
      found.status,
      found.eventType,
      `${found.aggregateType} ${found.aggregateId}`,
      String(found.aggregateVersion),
      found.occurredAt,
      found.offset === null ? "" : `${found.topic}/${found.partition}/${found.offset}`
    ])
  })
).pipe(Command.withDescription("Find events by id, order, customer, trace, type, state or time, newest first"))

/** One event in full: where it is, its headers and data, and what happened to it. */
export const shown = (event: Details): ReadonlyArray<string> => [
  ...table([
    ["event", event.eventId],
    ["status", event.status],
    ["type", `${event.eventType}, schema version ${event.schemaVersion}`],
    ["aggregate", `${event.aggregateType} ${event.aggregateId}, version ${event.aggregateVersion}`],
    ["topic", event.topic],
    ["trace", event.traceId],
    ...(event.nextAttemptAt === null ? [] : [["next try", event.nextAttemptAt]]),
    ...(event.aggregateParked === 0 ? [] : [["parked", `${event.aggregateParked} of its aggregate`]])
  ]),
  ...Object.entries(event.headers).map(([name, value]) => `header ${name}: ${value}`),
  `data ${JSON.stringify(event.data)}`,
  ...storyLines(event.story)
]

/** `show`, which outbox and events have alike. */
export const show = Command.make(
  "show",
  { json, eventId },
  Effect.fnUntraced(function* ({ eventId, json }) {
    const event = yield* onDatabase(OutboxReport.use((report) => report.show(eventId, consumerNames)))
    yield* print(json, event, () => shown(event))
  })
).pipe(Command.withDescription("Show one event: where it is, its headers and data, and all that happened to it"))

/** The command. */
export const events = Command.make("events").pipe(Command.withSubcommands([search, show]))
