/** `paid-once inbox status|list|show|retry|discard|skip`: what a consumer could not apply, for the person who has to decide about it. */
import { Console, Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { consumerNames } from "../main/Names.ts"
import type { Discarded, Redriven } from "../operations/DeadLetters.ts"
import { InboxDeadLetters } from "../operations/InboxDeadLetters.ts"
import { type Cause, Cursor, type Details, InboxReport, State } from "../operations/reports/InboxReport.ts"
import {
  by,
  byCause,
  eventFilterOf,
  eventFilters,
  json,
  known,
  knownIfGiven,
  onDatabase,
  operatorOf,
  pageFilter,
  pageFlags,
  print,
  printHandled,
  printPage,
  printDecided,
  reason,
  storyLines,
  table
} from "./Operator.ts"
import { ExitStatus } from "./Process.ts"

const consumer = Argument.String("consumer").pipe(
  Argument.withDescription("the consumer's name, as `inbox list` shows it")
)
const eventId = Argument.String("event-id").pipe(
  Argument.withDescription(
    "the event's id, or topic:partition:offset of a record that can't be read, as `inbox list` shows it"
  )
)

const filters = {
  consumer: Flag.String("consumer").pipe(Flag.withDescription("only events of this consumer"), Flag.optional),
  ...eventFilters
}
const filterOf = Effect.fnUntraced(function* (flags: {
  readonly [Key in keyof typeof filters]: Option.Option<string>
}) {
  return {
    consumer: yield* knownIfGiven("consumer", consumerNames, flags.consumer),
    ...(yield* eventFilterOf(flags))
  }
})

const status = Command.make(
  "status",
  { json },
  Effect.fnUntraced(function* ({ json }) {
    const found = yield* onDatabase(InboxReport.use((report) => report.status(consumerNames)))
    yield* print(json, found, () =>
      table([
        ["CONSUMER", "RETRYING", "GAPS", "PARKED", "DEAD", "DISCARDED", "OLDEST", "WHY IT RETRIES"],
        ...found.map(({ consumer, dead, discarded, gaps, oldestHeldSeconds, parked, retrying, ...tried }) => [
          consumer,
          ...[retrying, gaps, parked, dead, discarded].map(String),
          oldestHeldSeconds === null ? "" : `${oldestHeldSeconds.toFixed(1)} s`,
          tried.retryingCause ?? ""
        ])
      ])
    )
    if (found.some(({ dead, gaps }) => dead + gaps > 0)) return yield* Effect.fail(new ExitStatus(1))
  })
).pipe(Command.withDescription("Count what each consumer holds; exit status 1 when something needs a decision"))

const grouped = (causes: ReadonlyArray<Cause>) =>
  causes.length === 0
    ? ["None."]
    : table([
        ["EVENTS", "CONSUMER", "STATUS", "TYPE", "FIRST", "LAST", "CAUSE"],
        ...causes.map(({ cause, consumer, count, eventType, first, last, status }) => [
          String(count),
          consumer,
          status,
          eventType ?? "unreadable",
          first,
          last,
          cause
        ])
      ])

const list = Command.make(
  "list",
  {
    json,
    ...filters,
    status: Flag.Literals("status", State.literals).pipe(
      Flag.withDescription("only events in this state (default: dead, gap and retrying)"),
      Flag.optional
    ),
    byCause,
    ...pageFlags(Cursor)
  },
  Effect.fnUntraced(function* ({ byCause, json, limit, status, ...flags }) {
    const { cursor, ...ofTime } = pageFilter(flags)
    const filter = { ...(yield* filterOf(flags)), ...ofTime }
    if (byCause) {
      const causes = yield* onDatabase(InboxReport.use((report) => report.causes(filter, limit)))
      return yield* print(json, { items: causes }, () => grouped(causes))
    }
    const wanted = Option.match(status, {
      onNone: (): ReadonlyArray<State> => ["dead", "gap", "retrying"],
      onSome: (one) => [one]
    })
    const page = yield* onDatabase(InboxReport.use((report) => report.list(wanted, filter, { limit, cursor })))
    yield* printPage(
      json,
      page,
      ["CONSUMER", "EVENT", "STATUS", "TYPE", "AGGREGATE", "VERSION", "TRIES", "NEXT", "LAST ERROR"],
      (entry) => [
        entry.consumer,
        entry.eventId,
        entry.status,
        entry.eventType ?? "unreadable",
        entry.aggregateId,
        String(entry.aggregateVersion ?? ""),
        String(entry.attempts ?? ""),
        entry.nextAttemptAt ?? "",
        entry.lastError ?? ""
      ]
    )
  })
).pipe(
  Command.withDescription(
    "List events that a consumer could not apply or that came too early, and what waits behind them with --status parked"
  )
)

const shown = (event: Details): ReadonlyArray<string> => [
  ...table([
    ["event", event.eventId],
    ["consumer", event.consumer],
    ["status", event.status],
    ...(event.topic === null
      ? []
      : [
          ["type", event.eventType ?? "unreadable"],
          ["aggregate", `${event.aggregateId}, version ${event.aggregateVersion ?? "unknown"}`],
          ["record", `${event.topic}, partition ${event.partition}, offset ${event.offset}`],
          ["key", event.key ?? "none"],
          ...Object.entries(event.headers ?? {}).map(([name, value]) => [`header ${name}`, value]),
          ["payload", event.payload ?? "none"]
        ]),
    ...(event.nextAttemptAt === null ? [] : [["next try", event.nextAttemptAt]])
  ]),
  ...storyLines(event.story)
]

const show = Command.make(
  "show",
  { json, consumer, eventId },
  Effect.fnUntraced(function* ({ consumer, eventId, json }) {
    const name = yield* known("consumer", consumerNames, consumer)
    const event = yield* onDatabase(InboxReport.use((report) => report.show(name, eventId)))
    yield* print(json, event, () => shown(event))
  })
).pipe(Command.withDescription("Show one event of a consumer: its record, each failure, and who did what to it"))

/** A decision about one event of a consumer, or about all dead letters that match. */
const decision = (action: "retry" | "discard") =>
  Command.make(
    action,
    {
      json,
      consumer: Argument.optional(consumer),
      eventId: Argument.optional(eventId),
      all: Flag.Boolean("all").pipe(
        Flag.withDescription("every dead letter; or narrow it down with --consumer, --type, --aggregate"),
        Flag.withDefault(false)
      ),
      ofConsumer: filters.consumer,
      type: filters.type,
      aggregate: filters.aggregate,
      reason,
      by
    },
    Effect.fnUntraced(function* ({ aggregate, all, by, consumer, eventId, json, ofConsumer, reason, type }) {
      const operator = operatorOf({ by, reason })
      const filter = yield* filterOf({ consumer: ofConsumer, type, aggregate })
      const many = all || Object.values(filter).some((value) => value !== undefined)
      if (many ? Option.isSome(consumer) : Option.isNone(consumer) || Option.isNone(eventId)) {
        yield* Console.error(
          `paid-once: ${action} takes a consumer and an event id, or else --all, --consumer, --type or --aggregate`
        )
        return yield* Effect.fail(new ExitStatus(2))
      }
      if (!many && Option.isSome(consumer) && Option.isSome(eventId)) {
        const name = yield* known("consumer", consumerNames, consumer.value)
        const handled = yield* onDatabase(InboxDeadLetters.use((dead) => dead[action](name, eventId.value, operator)))
        return yield* printHandled(json, handled)
      }
      const decided = yield* onDatabase(
        InboxDeadLetters.use((dead): Effect.Effect<Redriven | Discarded> => dead[`${action}All`](filter, operator))
      )
      yield* printDecided(json, decided)
    })
  )

const retry = decision("retry").pipe(
  Command.withDescription("Try a dead letter again, first in its aggregate, under its id; or a failing event now")
)

const discard = decision("discard").pipe(
  Command.withDescription("Give an event up for one consumer; the rest of its aggregate goes on")
)

const skip = Command.make(
  "skip",
  { json, consumer, eventId, reason, by },
  Effect.fnUntraced(function* ({ by, consumer, eventId, json, reason }) {
    const name = yield* known("consumer", consumerNames, consumer)
    const handled = yield* onDatabase(
      Effect.flatMap(InboxDeadLetters, (letters) => letters.skip(name, eventId, operatorOf({ by, reason })))
    )
    yield* printHandled(json, handled)
  })
).pipe(Command.withDescription("Go on with an event that waits for earlier ones (status gap), without them"))

/** The command. */
export const inbox = Command.make("inbox").pipe(Command.withSubcommands([status, list, show, retry, discard, skip]))
