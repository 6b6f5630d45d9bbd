/** `paid-once inbox list|retry|discard|skip`: what a consumer could not apply, for the person who has to decide about it. */
import { Console, Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import * as Main from "../main.ts"
import { InboxDeadLetters } from "../operations/InboxDeadLetters.ts"
import { Cursor, InboxReport, State } from "../operations/InboxReport.ts"
import {
  by,
  eventFilters,
  json,
  known,
  onDatabase,
  operatorOf,
  pageFilter,
  pageFlags,
  printHandled,
  printPage,
  printRedriven,
  reason
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
const filterOf = (flags: { readonly [Key in keyof typeof filters]: Option.Option<string> }) => ({
  consumer: Option.getOrUndefined(flags.consumer),
  eventType: Option.getOrUndefined(flags.type),
  aggregateId: Option.getOrUndefined(flags.aggregate)
})

const checked = (name: Option.Option<string>) =>
  Option.isNone(name) ? Effect.void : known("consumer", Main.consumerNames, name.value)

const list = Command.make(
  "list",
  {
    json,
    ...filters,
    status: Flag.Literals("status", State.literals).pipe(
      Flag.withDescription("only events in this state (default: dead, gap and retrying)"),
      Flag.optional
    ),
    ...pageFlags(Cursor)
  },
  Effect.fnUntraced(function* ({ json, limit, status, ...flags }) {
    yield* checked(flags.consumer)
    const wanted = Option.match(status, {
      onNone: (): ReadonlyArray<State> => ["dead", "gap", "retrying"],
      onSome: (one) => [one]
    })
    const { cursor, ...ofTime } = pageFilter(flags)
    const page = yield* onDatabase(
      InboxReport.use((report) => report.list(wanted, { ...filterOf(flags), ...ofTime }, { limit, cursor }))
    )
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

const retry = Command.make(
  "retry",
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
    yield* checked(ofConsumer)
    const operator = operatorOf({ by, reason })
    const filter = filterOf({ consumer: ofConsumer, type, aggregate })
    const many = all || Object.values(filter).some((value) => value !== undefined)
    if (many ? Option.isSome(consumer) : Option.isNone(consumer) || Option.isNone(eventId)) {
      yield* Console.error(
        "paid-once: retry takes a consumer and an event id, or else --all, --consumer, --type or --aggregate"
      )
      return yield* Effect.fail(new ExitStatus(2))
    }
    if (!many && Option.isSome(consumer) && Option.isSome(eventId)) {
      const handled = yield* onDatabase(
        Effect.flatMap(InboxDeadLetters, (letters) => letters.retry(consumer.value, eventId.value, operator))
      )
      return yield* printHandled(json, handled)
    }
    const redriven = yield* onDatabase(
      Effect.flatMap(InboxDeadLetters, (letters) => letters.retryAll(filter, operator))
    )
    yield* printRedriven(json, redriven)
  })
).pipe(Command.withDescription("Try a dead letter again, first in its aggregate, under its id; or a failing event now"))

const discard = Command.make(
  "discard",
  { json, consumer, eventId, reason, by },
  Effect.fnUntraced(function* ({ by, consumer, eventId, json, reason }) {
    const handled = yield* onDatabase(
      Effect.flatMap(InboxDeadLetters, (letters) => letters.discard(consumer, eventId, operatorOf({ by, reason })))
    )
    yield* printHandled(json, handled)
  })
).pipe(Command.withDescription("Give an event up for one consumer; the rest of its aggregate goes on"))

const skip = Command.make(
  "skip",
  { json, consumer, eventId, reason, by },
  Effect.fnUntraced(function* ({ by, consumer, eventId, json, reason }) {
    const handled = yield* onDatabase(
      Effect.flatMap(InboxDeadLetters, (letters) => letters.skip(consumer, eventId, operatorOf({ by, reason })))
    )
    yield* printHandled(json, handled)
  })
).pipe(Command.withDescription("Go on with an event that waits for earlier ones (status gap), without them"))

/** The command. */
export const inbox = Command.make("inbox").pipe(
  Command.withDescription("Events that a consumer could not apply: look, try again, give up"),
  Command.withSubcommands([list, retry, discard, skip])
)
