/** The drill `poison`: an event that one consumer can't apply delays its own order, for that consumer, and nothing else. */
import { Effect } from "effect"
import { billing } from "../../application/subscribers/Billing.ts"
import { InboxDeadLetters } from "../../operations/InboxDeadLetters.ts"
import { poisonOf } from "./Breakages.ts"
import type { Steps } from "./Ground.ts"
import { DrillFailed } from "./Teller.ts"

const consumer = billing.name

export const poison: Steps<InboxDeadLetters> = Effect.fnUntraced(function* ({
  applied,
  hurt,
  operator,
  pageOf,
  pay,
  place,
  refund,
  teller: { tell, until },
  timeline
}) {
  const order = yield* place()
  yield* tell("does", `An order is placed, and its event OrderPlaced goes to all consumers: ${order}.`, pageOf(order))
  yield* applied(order, 1)

  const mend = yield* hurt(poisonOf(order))
  yield* tell("breaks", `A constraint, as from a hasty migration: ${consumer}'s ledger takes no row of this order.`)
  yield* pay(order)
  yield* refund(order)
  const states = Effect.map(timeline(order), ({ events }) => events.map(({ consumers }) => consumers[consumer]))
  yield* until(
    `${consumer} to fail`,
    Effect.map(states, ([, paid, refunded]) => (paid === "retrying" || paid === "dead") && refunded === "parked")
  )
  yield* applied(order, 3, consumer)
  yield* tell(
    "sees",
    `The order is paid and refunded. ${consumer} can't apply OrderPaid and tries it again; OrderRefunded is parked behind it, for an event never ` +
      "overtakes an earlier one of its order. The other consumers have applied both.",
    pageOf(order)
  )
  const other = yield* place()
  yield* pay(other)
  yield* applied(other, 2)
  yield* tell("sees", `Another order is paid, and ${consumer} applies it at once: nothing else waits.`, pageOf(other))

  yield* mend
  yield* tell("mends", "The constraint is dropped.")
  const eventId = (yield* timeline(order)).events[1]!.eventId
  yield* InboxDeadLetters.use(({ retry }) => retry(consumer, eventId, operator)).pipe(
    Effect.mapError(({ message }) => new DrillFailed({ reason: message }))
  )
  yield* tell("mends", `As an operator would: paid-once inbox retry ${consumer} ${eventId} --reason "…"`)
  yield* applied(order, 3)
  return []
})
