/** `paid-once reconcile [--repair]`: compares all books, and repairs what the use cases can repair. */
import { Console, Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { Reconciliation } from "../application/reconciliation/Reconciliation.ts"
import type { ReconciliationReport, ReportedDifference } from "../application/reconciliation/ReconciliationRuns.ts"
import { countOf } from "../platform/Plural.ts"
import { by, json, onGateway, operatorOf, print, reason, table } from "./Operator.ts"
import { ExitStatus } from "./Process.ts"

const repairOf = ({ repair }: ReportedDifference): string =>
  repair === null ? "" : repair.why === null ? repair.outcome : `${repair.outcome}: ${repair.why}`

const lines = ({ compared, differences, items, notCompared, repaired, rules }: ReconciliationReport) => [
  `Compared ${compared.map(({ name, rows }) => `${name} (${rows})`).join(", ")}.`,
  ...notCompared.map(({ rules, why }) => `Not compared: ${why}: ${rules.join(", ")}.`),
  ...(repaired === 0 ? [] : [`Repaired ${countOf(repaired, "difference")}.`]),
  ...rules
    .filter(({ count, rule }) => count > 0 || items.some((item) => item.rule === rule))
    .flatMap(({ books, count, means, repair, rule }) => [
      "",
      `${rule}: ${count} (${books}): ${means}.`,
      `  ${repair === null ? "A person has to mend it" : `--repair: ${repair}`}.`,
      ...table(
        items
          .filter((item) => item.rule === rule)
          .map((item) => [
            "  ",
            item.paymentId === null
              ? item.orderId === null
                ? item.id
                : `order ${item.orderId}`
              : `payment ${item.paymentId}`,
            `${item.expected} is expected, and there is: ${item.found}`,
            repairOf(item)
          ])
      )
    ]),
  "",
  differences === 0 ? "All books agree." : `${countOf(differences, "difference")}.`
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
    by
  },
  Effect.fnUntraced(function* ({ by, json, reason, repair }) {
    if (repair && Option.isNone(reason)) {
      yield* Console.error("paid-once: --repair needs --reason: the audit keeps it")
      return yield* Effect.fail(new ExitStatus(2))
    }
    const operator = operatorOf({ by, reason: Option.getOrElse(reason, () => "") })
    const report = yield* onGateway(
      Reconciliation.use(({ run }) =>
        run({ actor: operator.actor, repair: repair ? { reason: operator.reason } : undefined })
      )
    )
    yield* print(json, report, () => lines(report))
    if (report.differences > 0 || report.notCompared.length > 0) return yield* Effect.fail(new ExitStatus(1))
  })
)
