/** Shared parts of the operator's commands: flags, the audit's actor and reason, and the printing of lists. */
import { Console, Effect, Layer, Option, Result, Schema } from "effect"
import { Flag } from "effect/cli"
import { hostname, userInfo } from "node:os"
import * as Config from "../Config.ts"
import { eventTypes } from "../domain/Events.ts"
import * as Lifecycle from "../Lifecycle.ts"
import type { CashierServices } from "../main/Cashier.ts"
import type { OperatorServices } from "../main/Commands.ts"
import type * as Examination from "../main/Doctor.ts"
import { brokerOf } from "../main/Names.ts"
import type { Discarded, EventKey, Handled, Redriven } from "../operations/DeadLetters.ts"
import type { Step } from "../operations/reports/EventStory.ts"
import { logging } from "../CommandSettings.ts"
import { countOf, plural } from "../platform/Plural.ts"
import { unpresentable } from "../platform/StorableText.ts"
import { duration } from "../Variable.ts"
import { ExitStatus } from "./Process.ts"
import * as Terminal from "./Terminal.ts"

export { table } from "./Terminal.ts"

export const json = Flag.Boolean("json").pipe(
  Flag.withDescription("print JSON for programs to read"),
  Flag.withDefault(false)
)

export const reason = Flag.String("reason").pipe(
  Flag.withDescription("why: it is kept in the audit"),
  Flag.withSchema(Schema.String.check(Schema.isPattern(/\S/, { message: "a few words, and not only blanks" })))
)

export const by = Flag.String("by").pipe(
  Flag.withDescription("who does it, for the audit (default: the user of this shell, at this host)"),
  Flag.withSchema(Schema.String.check(Schema.isPattern(/\S/, { message: "a few words, and not only blanks" }))),
  Flag.optional
)

export const operatorOf = (flags: { readonly by: Option.Option<string>; readonly reason: string }) => ({
  actor: Option.getOrElse(flags.by, () => `${userInfo().username}@${hostname()}`),
  reason: flags.reason
})

export const limit = Flag.Int("limit").pipe(
  Flag.withDescription("how many at most"),
  Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 1_000 }))),
  Flag.withDefault(50)
)

/** Whether a list is grouped by cause. */
export const byCause = Flag.Boolean("by-cause").pipe(
  Flag.withDescription("group what failed by why it failed"),
  Flag.withDefault(false)
)

/** Filters of events that outbox and inbox share. */
export const eventFilters = {
  type: Flag.String("type").pipe(
    Flag.withDescription(`only events of this type: ${eventTypes.join(", ")}`),
    Flag.optional
  ),
  aggregate: Flag.String("aggregate").pipe(
    Flag.withDescription("only events of the aggregate with this id"),
    Flag.withSchema(Schema.NonEmptyString),
    Flag.optional
  )
}

/** Seconds back from now. */
export const ago = (name: string, description: string) =>
  Flag.String(name).pipe(
    Flag.withDescription(description),
    Flag.filterMap(
      (text) => Option.map(Result.getSuccess(duration(text)), (millis) => millis / 1_000),
      () => "Expected a time like 90s, 30m, 2h or 1d"
    ),
    Flag.optional
  )

/** A day that the calendar has, alone or with a time and its zone: a time without one would be another one on another machine. */
const timePattern = /^(\d{4}-\d\d-\d\d)(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/
const timeIn = (text: string): Option.Option<Date> => {
  const day = timePattern.exec(text)?.[1]
  const [at, midnight] = [new Date(text), new Date(`${day}T00:00:00Z`)]
  return Number.isNaN(at.getTime()) || Number.isNaN(midnight.getTime()) || !midnight.toISOString().startsWith(`${day}T`)
    ? Option.none()
    : Option.some(at)
}

/** A point in time. */
export const time = (name: string, description: string) =>
  Flag.String(name).pipe(
    Flag.withDescription(`${description}, for example 2026-03-01T12:00:00Z`),
    Flag.filterMap(timeIn, () => "Expected a day like 2026-03-01, or a time with its zone like 2026-03-01T12:00:00Z"),
    Flag.optional
  )

/** Of the last hours or days. */
export const since = ago("since", "only of this last time, for example 30m, 2h or 1d")

const printable = (text: string): string => text.replaceAll(unpresentable, "\uFFFD")

/** The same value, with escapes for what `JSON.stringify` leaves as it is. */
const printableJson = (value: unknown): string =>
  JSON.stringify(value).replaceAll(
    unpresentable,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`
  )

/** A name out of these. Any other is refused: nothing found for a name that is misspelt would pass for good news. */
export const known = (kind: string, names: ReadonlyArray<string>, name: string) =>
  names.includes(name)
    ? Effect.succeed(name)
    : Effect.andThen(
        Console.error(`paid-once: there is no ${kind} ${printable(name)}: they are ${names.join(", ")}`),
        Effect.fail(new ExitStatus(2))
      )

/** {@link known}, of a flag that may be absent. */
export const knownIfGiven = (kind: string, names: ReadonlyArray<string>, name: Option.Option<string>) =>
  Option.isNone(name) ? Effect.succeed(undefined) : known(kind, names, name.value)

/** The filter of {@link eventFilters}. */
export const eventFilterOf = (flags: { readonly [Key in keyof typeof eventFilters]: Option.Option<string> }) =>
  Effect.map(knownIfGiven("event type", eventTypes, flags.type), (eventType) => ({
    eventType,
    aggregateId: Option.getOrUndefined(flags.aggregate)
  }))

/** A story's steps, a line each. */
export const storyLines = (story: ReadonlyArray<Step>): ReadonlyArray<string> =>
  story.map(({ at, by, what }) => `${at}  ${what.replaceAll(/\s+/g, " ")}${by === undefined ? "" : `, by ${by}`}`)

/** The configuration. A variable that looks like one of ours is named: with `DATABSE_URL` another database would be looked at. */
const configured = Effect.tap(Config.load, (config) =>
  Effect.provide(Lifecycle.warnOfUnknown(process.env), logging(config))
)

/** The services of a command are loaded once it runs: help and wrong usage need none of them. */
const commandServices = Effect.promise(() => import("../main/Commands.ts"))
const cashierServices = Effect.promise(() => import("../main/Cashier.ts"))

export const named = (what: string) => Console.error(`paid-once: ${what}`)

/** Runs a command's work on the configured database, which is named on stderr. None is created, and none migrated. */
export const onDatabase = <A, E, R extends OperatorServices>(work: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const config = yield* configured
    const { nameOf, operator } = yield* commandServices
    yield* named(`the database is ${nameOf(config)}`)
    return yield* Effect.provide(work, operator(config))
  })

/** {@link onDatabase}, for work that also asks the broker, which is named on stderr, too. */
export const onBroker = <A, E, R extends OperatorServices>(work: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    yield* named(`the broker is ${brokerOf(yield* Config.load)}`)
    return yield* onDatabase(work)
  })

/** Examines the configured database and broker, which are named on stderr. Neither has to be as this version wants it: that is what is looked at. */
export const onFound = <A, E, R>(
  work: (config: Config.AppConfig, examine: typeof Examination.examine) => Effect.Effect<A, E, R>
) =>
  Effect.gen(function* () {
    const config = yield* configured
    const { examine } = yield* Effect.promise(() => import("../main/Doctor.ts"))
    const { foundSettings, nameOf } = yield* Effect.promise(() => import("../main/Storage.ts"))
    yield* named(`the database is ${nameOf(config)}`)
    yield* named(`the broker is ${brokerOf(config)}`)
    return yield* Effect.provide(work(config, examine), Layer.merge(foundSettings(config), logging(config)))
  })

/** {@link onDatabase}, for work that also asks the payment gateway, which is named on stderr, too. */
export const onGateway = <A, E, R extends CashierServices>(work: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const config = yield* configured
    const { cashier, nameOf } = yield* cashierServices
    yield* named(`the database is ${nameOf(config)}`)
    yield* named(`the gateway is ${config.gatewayUrl?.url ?? "the sandbox beside the service"}`)
    return yield* Effect.provide(work, cashier(config))
  })

/** The flags of a list that comes in pages; `id` is the schema of a cursor. */
export const pageFlags = <Id extends string>(id: Schema.Codec<Id, string>) => ({
  since,
  cursor: Flag.String("cursor").pipe(
    Flag.withDescription("only what is older than this one: the next page"),
    Flag.withSchema(id),
    Flag.optional
  ),
  limit
})

/** The filter that {@link pageFlags} make. */
export const pageFilter = <Id>(flags: {
  readonly since: Option.Option<number>
  readonly cursor: Option.Option<Id>
}): { readonly sinceSeconds?: number; readonly cursor?: Id } => ({
  ...(Option.isSome(flags.since) ? { sinceSeconds: flags.since.value } : {}),
  ...(Option.isSome(flags.cursor) ? { cursor: flags.cursor.value } : {})
})

/** A page as a table, with its next cursor, or JSON. */
export const printPage = <A>(
  asJson: boolean,
  page: { readonly items: ReadonlyArray<A>; readonly nextCursor: string | null },
  head: ReadonlyArray<string>,
  row: (item: A) => ReadonlyArray<string>
) =>
  print(asJson, page, () => [
    ...(page.items.length === 0 ? ["None."] : Terminal.table([head, ...page.items.map(row)])),
    ...(page.nextCursor === null
      ? []
      : [`There are more: --cursor ${page.nextCursor.includes(" ") ? `"${page.nextCursor}"` : page.nextCursor}`])
  ])

/** Prints lines, or JSON. Strangers' words are in both: none of them moves the cursor, or turns the text around it. */
export const print = (asJson: boolean, value: unknown, lines: () => ReadonlyArray<string>) =>
  Console.log(
    asJson
      ? printableJson(value)
      : lines()
          .map((line) => Terminal.colour(printable(line), Terminal.current()))
          .join("\n")
  )

/** One line about the event, or JSON. */
export const printHandled = (asJson: boolean, handled: Handled<EventKey, string>) => {
  const { changed, consumer, eventId, status } = handled
  const event = consumer === undefined ? `Event ${eventId}` : `Event ${eventId} of ${consumer}`
  return print(asJson, handled, () => [changed ? `${event}: ${status}.` : `${event} is ${status} already.`])
}

/** The result of a decision about many, or JSON. Exit status 1 where a dead letter has to wait. */
export const printDecided = Effect.fnUntraced(function* (asJson: boolean, decided: Redriven | Discarded) {
  const { refused, refusedCount } = decided
  yield* print(asJson, decided, () => [
    "retried" in decided
      ? `Retrying ${countOf(decided.retried, "event")}.`
      : `Discarded ${countOf(decided.discarded, "event")}.`,
    ...(refusedCount === 0 ? [] : [`${refusedCount} ${plural(refusedCount, "has", "have")} to wait:`]),
    ...refused.map(({ reason }) => `  ${reason}`)
  ])
  if (refusedCount > 0) return yield* Effect.fail(new ExitStatus(1))
})
