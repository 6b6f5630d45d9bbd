/** `paid-once reconcile [--repair]`: compares all books, and repairs what the use cases can repair. */
import { Console, Effect, Option, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import { Reconciliation } from "../application/reconciliation/Reconciliation.ts"
import {
  listedLimit,
  type ReconciliationReport,
  type ReportedDifference,
  type RuleCount
} from "../application/reconciliation/ReconciliationRuns.ts"
import { countOf, numberOf } from "../platform/Plural.ts"
import { by, json, onGateway, operatorOf, print, reason } from "./Operator.ts"
import { ExitStatus } from "./Process.ts"

/** Some five megabytes of each rule, in a heap of 1.5 GB. */
const maximumListed = 10_000

/** The repair of the difference, its outcome, or the way by hand. */
const mendedBy = ({ repair }: ReportedDifference, rule: RuleCount): readonly [string, string] => {
  if (rule.repair === null) return ["by hand", rule.byHand ?? "a person has to mend it"]
  switch (repair?.outcome) {
    case undefined:
      return ["--repair", rule.repair]
    case "repaired":
      return ["repaired", rule.repair]
    case "gone":
      return ["gone", "it was not there any more when the repair looked again"]
    case "manual":
      return ["refused", repair?.why ?? "the repair gave no reason"]
  }
}

/** Sentences are never cut to a terminal's width. */
const fact = (name: string, text: string) => `    ${`${name}:`.padEnd(11)}${text}`

const itemLines = (item: ReportedDifference, rule: RuleCount): ReadonlyArray<string> => [
  `  ${rule.rule} (${rule.books}): ${rule.means}.`,
  ...(item.paymentId === null ? [] : [fact("payment", item.paymentId)]),
  ...(item.paymentId === null && item.orderId === null ? [fact("of", item.id)] : []),
  fact("expected", item.expected),
  fact("found", item.found),
  fact(...mendedBy(item, rule))
]

/** Each order with all that differs of it; at the end what is of no order. */
const groupsOf = (items: ReadonlyArray<ReportedDifference>, rules: ReadonlyMap<string, RuleCount>) => {
  const groups = [...Map.groupBy(items, ({ orderId }) => orderId)].toSorted(
    ([a], [b]) => Number(a === null) - Number(b === null)
  )
  return groups.flatMap(([orderId, group]) => [
    "",
    orderId === null ? "Of no order" : `Order ${orderId}`,
    ...group.flatMap((item) => itemLines(item, rules.get(item.rule)!))
  ])
}

/** A report lists some differences of each rule. */
const restOf = (items: ReadonlyArray<ReportedDifference>, { count, rule }: RuleCount): ReadonlyArray<string> => {
  const left = items.filter(
    (item) => item.rule === rule && (item.repair === null || item.repair.outcome === "manual")
  ).length
  // None is listed of a rule that could not be compared: it counts as it did before.
  const hint = left === 0 || left >= maximumListed ? "" : ": --limit lists more"
  return count > left ? ["", `${numberOf(count - left)} more of ${rule}${hint}.`] : []
}

const lines = ({ compared, differences, items, notCompared, repaired, rules }: ReconciliationReport) => [
  `Compared ${compared.map(({ name, rows }) => `${name} (${rows})`).join(", ")}.`,
  ...notCompared.map(({ rules, why }) => `Not compared: ${why}: ${rules.join(", ")}.`),
  ...(repaired === 0 ? [] : [`Repaired ${countOf(repaired, "difference")}.`]),
  ...groupsOf(items, new Map(rules.map((rule) => [rule.rule, rule]))),
  ...rules.flatMap((rule) => restOf(items, rule)),
  "",
  differences === 0
    ? notCompared.length === 0
      ? "All books agree."
      : "The books that were compared agree."
    : `${countOf(differences, "difference")}.`
]

/** The command. */
export const reconcile = Command.make(
  "reconcile",
  {
    json,
    repair: Flag.Boolean("repair").pipe(
      Flag.withDescription("repair what the use cases can repair; needs --reason"),
      Flag.withDefault(false)
    ),
    reason: Flag.optional(reason),
    limit: Flag.Int("limit").pipe(
      Flag.withDescription("how many differences of each rule are listed at most"),
      Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: maximumListed }))),
      Flag.withDefault(listedLimit)
    ),
    by
  },
  Effect.fnUntraced(function* ({ by, json, limit, reason, repair }) {
    if (repair && Option.isNone(reason)) {
      yield* Console.error("paid-once: --repair needs --reason: the audit keeps it")
      return yield* Effect.fail(new ExitStatus(2))
    }
    if (!repair && Option.isSome(reason)) {
      yield* Console.error("paid-once: --reason needs --repair: a comparison changes nothing")
      return yield* Effect.fail(new ExitStatus(2))
    }
    const operator = operatorOf({ by, reason: Option.getOrElse(reason, () => "") })
    const report = yield* onGateway(
      Reconciliation.use(({ run }) =>
        run({ actor: operator.actor, repair: repair ? { reason: operator.reason } : undefined, listed: limit })
      )
    )
    yield* print(json, report, () => lines(report))
    if (report.differences > 0 || report.notCompared.length > 0) return yield* Effect.fail(new ExitStatus(1))
  })
)
