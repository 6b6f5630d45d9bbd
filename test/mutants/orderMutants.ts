/** Mistakes in what an operator decides about an order. */
import type { Mutant } from "./mutants.ts"

const adminTest = "test/http/AdminTasks.test.ts"
const once = "an order is refunded or cancelled for a reason"

export const orderMutants: ReadonlyArray<Mutant> = [
  {
    name: "row-for-each-click",
    breaks: "a second click on a refund leaves a second row, as if the money went back twice",
    file: "src/application/OrderDecision.ts",
    find: "if (!changed) return",
    replace: "if (false as boolean) return",
    seenBy: { file: adminTest, test: once }
  },
  {
    name: "refunds-unaudited",
    breaks: "an operator gives money back, and the audit does not name who and why",
    file: "src/application/OrderDecision.ts",
    find: "    OperatorAudit.record({",
    replace: "    ((_: OperatorAudit.Entry) => Effect.void)({",
    seenBy: { file: adminTest, test: once }
  },
  {
    name: "refunds-on-one-click",
    breaks: "the page gives money back without a form, a reason or a look at the amount",
    file: "src/console/pages/orders/OrderActions.js",
    find: "<${Actions} actions=${[action]}>",
    replace: '<button onClick=${() => void action.run("-", {})}>${action.label}…</button><${Actions} actions=${[]}>',
    seenBy: { file: "test/console/Travel.test.ts", test: "an order that is placed and paid in the console" }
  }
]
