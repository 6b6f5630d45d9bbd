/** `paid-once replay CONSUMER`: counts the events that a consumer may get again, and with --apply hands them to its handler. */
import { Console, Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { bind } from "../inbox/Subscriber.ts"
import { consumerNames, subscribers } from "../main/Names.ts"
import { Replay, type Replayed } from "../operations/replay/Replay.ts"
import { countOf } from "../platform/Plural.ts"
import type { Tasks } from "../tasks/Tasks.ts"
import {
  by,
  eventFilterOf,
  eventFilters,
  json,
  known,
  onDatabase,
  operatorOf,
  print,
  reason,
  time
} from "./Operator.ts"
import { ExitStatus } from "./Process.ts"

const lines = ({ consumer, dryRun, givenUp, replayed, tooOld, waiting }: Replayed): ReadonlyArray<string> => [
  dryRun
    ? `${consumer} would get ${countOf(replayed, "event")} again. --apply --reason "…" hands them over.`
    : `${consumer} has got ${countOf(replayed, "event")} again.`,
  ...(waiting === 0 ? [] : [`  ${countOf(waiting, "event")} not applied yet: they come by themselves.`]),
  ...(givenUp === 0 ? [] : [`  ${countOf(givenUp, "event")} discarded or skipped: they stay so.`]),
  ...(tooOld === 0
    ? []
    : [`  ${countOf(tooOld, "event")} too old: the task with the key of its effect may be deleted.`])
]

/** The command. Exit status 1 if the consumer may get no event again, if the archive has no such event, and if the handler fails. */
export const replay = Command.make(
  "replay",
  {
    consumer: Argument.String("consumer").pipe(Argument.withDescription(`the consumer: ${consumerNames.join(", ")}`)),
    ...eventFilters,
    from: time("from", "only events from this time on"),
    to: time("to", "only events before this time (default: now)"),
    apply: Flag.Boolean("apply").pipe(
      Flag.withDescription("hand the events over; without it they are counted"),
      Flag.withDefault(false)
    ),
    reason: Flag.optional(reason),
    by,
    json
  },
  Effect.fnUntraced(function* ({ aggregate, apply, by, consumer, from, json, reason, to, type }) {
    yield* known("consumer", consumerNames, consumer)
    const { aggregateId, eventType } = yield* eventFilterOf({ aggregate, type })
    if (apply && Option.isNone(reason)) {
      yield* Console.error("paid-once: --apply needs --reason: the audit keeps it")
      return yield* Effect.fail(new ExitStatus(2))
    }
    if (Option.isSome(from) && Option.isSome(to) && from.value >= to.value) {
      yield* Console.error("paid-once: --from is not before --to: no event can be in between")
      return yield* Effect.fail(new ExitStatus(2))
    }
    const filter = {
      ...(aggregateId === undefined ? {} : { aggregateId }),
      ...(eventType === undefined ? {} : { eventType }),
      ...(Option.isNone(from) ? {} : { from: from.value }),
      ...(Option.isNone(to) ? {} : { to: to.value })
    }
    const operator = apply ? operatorOf({ by, reason: Option.getOrElse(reason, () => "") }) : undefined
    const replayed = yield* onDatabase(
      Effect.gen(function* () {
        const subscriber = bind(
          subscribers.find(({ name }) => name === consumer)!,
          yield* Effect.context<Tasks>()
        )
        return yield* Replay.use(({ run }) => run(subscriber, filter, operator, () => Effect.void))
      })
    ).pipe(
      Effect.catchTag("ReplayRefused", (error) =>
        Effect.andThen(Console.error(`paid-once: ${error.message}`), Effect.fail(new ExitStatus(1)))
      )
    )
    yield* print(json, replayed, () => lines(replayed))
  })
)
