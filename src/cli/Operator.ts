/** Shared parts of the operator's commands: flags, the audit's actor and reason, and the printing of lists. */
import { Console, Effect, Option, Schema } from "effect"
import { Flag } from "effect/cli"
import { hostname, userInfo } from "node:os"
import * as Config from "../Config.ts"
import * as Main from "../main.ts"
import type { EventKey, Handled, Redriven } from "../operations/DeadLetters.ts"
import { ExitStatus } from "./Process.ts"

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

/** Filters of events that outbox and inbox share. */
export const eventFilters = {
  type: Flag.String("type").pipe(Flag.withDescription("only events of this type"), Flag.optional),
  aggregate: Flag.String("aggregate").pipe(
    Flag.withDescription("only events of the aggregate with this id"),
    Flag.optional
  )
}

/** Runs a command's work on the configured database. */
export const onDatabase = <A, E, R extends Main.OperatorServices>(work: Effect.Effect<A, E, R>) =>
  Effect.flatMap(Config.load, (config) => Effect.provide(work, Main.operator(config)))

export const print = (asJson: boolean, value: unknown, lines: () => ReadonlyArray<string>) =>
  Console.log(asJson ? JSON.stringify(value) : lines().join("\n"))

/** One line about the event, or JSON. */
export const printHandled = (asJson: boolean, handled: Handled<EventKey, string>) => {
  const { changed, consumer, eventId, status } = handled
  const event = consumer === undefined ? `Event ${eventId}` : `Event ${eventId} of ${consumer}`
  return print(asJson, handled, () => [changed ? `${event}: ${status}.` : `${event} is ${status} already.`])
}

/** The result of a redrive, or JSON. Exit status 1 where a dead letter has to wait. */
export const printRedriven = Effect.fnUntraced(function* (asJson: boolean, redriven: Redriven) {
  const { refused, refusedCount, retried } = redriven
  yield* print(asJson, redriven, () => [
    `Retrying ${retried} events.`,
    ...(refusedCount === 0 ? [] : [`${refusedCount} have to wait:`]),
    ...refused.map(({ reason }) => `  ${reason}`)
  ])
  if (refusedCount > 0) return yield* Effect.fail(new ExitStatus(1))
})

/** Columns as wide as their widest cell. A row is a line, whatever line breaks are in it. */
export const table = (given: ReadonlyArray<ReadonlyArray<string>>): ReadonlyArray<string> => {
  const rows = given.map((row) => row.map((cell) => cell.replaceAll(/\s+/g, " ").trim()))
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd()
  )
}
