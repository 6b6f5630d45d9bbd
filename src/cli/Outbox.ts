/** `paid-once outbox status|list|show|retry|discard`: what the broker refused, for the person who has to decide about it. */
import { Console, Effect, Option, Schema } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { topicNames } from "../main/Names.ts"
import type { Discarded, Redriven } from "../operations/DeadLetters.ts"
import { OutboxDeadLetters } from "../operations/OutboxDeadLetters.ts"
import { type Cause, Listed, OutboxReport } from "../operations/reports/OutboxReport.ts"
import {
  by,
  byCause,
  eventFilterOf,
  eventFilters,
  json,
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
  table
} from "./Operator.ts"
import { show } from "./Events.ts"
import { ExitStatus } from "./Process.ts"

const Id = Schema.String.check(Schema.isUUID())
const eventId = Argument.String("event-id").pipe(
  Argument.withDescription("the event's id, as `outbox list` shows it"),
  Argument.withSchema(Id)
)

const filters = {
  topic: Flag.String("topic").pipe(
    Flag.withDescription(`only events of this topic: ${topicNames.join(", ")}`),
    Flag.optional
  ),
  ...eventFilters
}
const filterOf = Effect.fnUntraced(function* (flags: {
  readonly [Key in keyof typeof filters]: Option.Option<string>
}) {
  return { topic: yield* knownIfGiven("topic", topicNames, flags.topic), ...(yield* eventFilterOf(flags)) }
})

const status = Command.make(
  "status",
  { json },
  Effect.fnUntraced(function* ({ json }) {
    const found = yield* onDatabase(Effect.flatMap(OutboxReport, (report) => report.status))
    yield* print(json, found, () => [
      ...table([
        ["queued", String(found.queued), `on their way; the oldest for ${found.oldestQueuedSeconds.toFixed(1)} s`],
        [
          "retrying",
          String(found.retrying),
          `refused by the broker, and tried again${found.retryingCause === null ? "" : `: ${found.retryingCause}`}`
        ],
        ["parked", String(found.parked), "behind a refused event of their aggregate"],
        [
          "dead",
          String(found.dead),
          `refused for good: their aggregates wait for a decision (${found.aggregatesWaiting})`
        ],
        ["discarded", String(found.discarded), "given up"]
      ])
    ])
    if (found.dead > 0) return yield* Effect.fail(new ExitStatus(1))
  })
).pipe(Command.withDescription("Count events by where they are; exit status 1 when there are dead letters"))

const grouped = (causes: ReadonlyArray<Cause>) =>
  causes.length === 0
    ? ["None."]
    : table([
        ["EVENTS", "STATUS", "TYPE", "FIRST", "LAST", "CAUSE"],
        ...causes.map(({ cause, count, eventType, first, last, status }) => [
          String(count),
          status,
          eventType,
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
    status: Flag.Literals("status", Listed.literals).pipe(
      Flag.withDescription("only events in this state (default: dead and retrying)"),
      Flag.optional
    ),
    byCause,
    ...pageFlags(Id)
  },
  Effect.fnUntraced(function* ({ byCause, json, limit, status, ...flags }) {
    const { cursor, ...ofTime } = pageFilter(flags)
    const filter = { ...(yield* filterOf(flags)), ...ofTime }
    if (byCause) {
      const causes = yield* onDatabase(OutboxReport.use((report) => report.causes(filter, limit)))
      return yield* print(json, { items: causes }, () => grouped(causes))
    }
    const wanted = Option.match(status, { onNone: () => ["dead", "retrying"] as const, onSome: (one) => [one] })
    const page = yield* onDatabase(OutboxReport.use((report) => report.list(wanted, filter, { limit, cursor })))
    yield* printPage(
      json,
      page,
      ["EVENT", "STATUS", "TYPE", "AGGREGATE", "VERSION", "SENDS", "NEXT", "LAST ERROR"],
      (entry) => [
        entry.eventId,
        entry.status,
        entry.eventType,
        `${entry.aggregateType} ${entry.aggregateId}`,
        String(entry.aggregateVersion),
        String(entry.attempts ?? ""),
        entry.nextAttemptAt ?? "",
        entry.lastError ?? ""
      ]
    )
  })
).pipe(
  Command.withDescription("List refused events, the newest first, and what waits behind them with --status parked")
)

/** A decision about one event, or about all dead letters that match. */
const decision = (action: "retry" | "discard") =>
  Command.make(
    action,
    {
      json,
      eventId: Argument.optional(eventId),
      all: Flag.Boolean("all").pipe(
        Flag.withDescription("every dead letter; or narrow it down with --topic, --type, --aggregate"),
        Flag.withDefault(false)
      ),
      ...filters,
      reason,
      by
    },
    Effect.fnUntraced(function* ({ all, by, eventId, json, reason, ...flags }) {
      const operator = operatorOf({ by, reason })
      const filter = yield* filterOf(flags)
      const many = all || Object.values(filter).some((value) => value !== undefined)
      if (Option.isSome(eventId) === many) {
        yield* Console.error(`paid-once: ${action} takes an event id, or else --all, --topic, --type or --aggregate`)
        return yield* Effect.fail(new ExitStatus(2))
      }
      if (Option.isSome(eventId)) {
        const handled = yield* onDatabase(OutboxDeadLetters.use((dead) => dead[action](eventId.value, operator)))
        return yield* printHandled(json, handled)
      }
      const decided = yield* onDatabase(
        OutboxDeadLetters.use((dead): Effect.Effect<Redriven | Discarded> => dead[`${action}All`](filter, operator))
      )
      yield* printDecided(json, decided)
    })
  )

const retry = decision("retry").pipe(
  Command.withDescription(
    "Send a dead letter again, first in its aggregate, with its id and version; or a refused event now"
  )
)

const discard = decision("discard").pipe(
  Command.withDescription("Give a refused event up; the rest of its aggregate goes on")
)

/** The command. */
export const outbox = Command.make("outbox").pipe(Command.withSubcommands([status, list, show, retry, discard]))
