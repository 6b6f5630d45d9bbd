/**
 * The rows that a repair may believe. A difference for a person means that one of the order's rows is wrong, and nobody knows which one. Until it
 * is mended, no repair builds on the order: mail, goods or money would follow a damaged row.
 */
import { Effect } from "effect"
import type { Transaction } from "../../platform/Transaction.ts"
import { CantMend, type Found, type NotReadable, type Walk } from "./Difference.ts"

/** The rule whose doubt ends with the repair: the order lacks a refund, and the gateway tells of it. */
const endedBy: Readonly<Record<string, string>> = { "gateway-refund-unrecorded": "refunded-without-refund" }

/** Asks the gateway now, and the rows in the repair's transaction. The effect fails if a rule of any walk doubts the order. */
export const trustIn = (
  walks: ReadonlyArray<Walk>,
  { orderId, rule }: Found
): Effect.Effect<Effect.Effect<void, CantMend, Transaction>, NotReadable> =>
  orderId === null
    ? Effect.succeed(Effect.void)
    : Effect.map(
        Effect.forEach(walks, ({ doubts }) => doubts?.(orderId) ?? Effect.succeed(Effect.succeed([]))),
        (all) =>
          Effect.gen(function* () {
            const rules = (yield* Effect.all(all)).flat().filter((name) => name !== endedBy[rule])
            if (rules.length > 0) {
              return yield* new CantMend({
                reason: `it waits for ${[...new Set(rules)].join(", ")} of the same order: a person mends that first`
              })
            }
          })
      )
