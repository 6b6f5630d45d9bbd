/** The drill `oversize`: an event that the broker refuses becomes a dead letter of the outbox, holds its own order, and is sent after a mend. */
import { Effect } from "effect"
import { OutboxDeadLetters } from "../../operations/OutboxDeadLetters.ts"
import { limitNow, smallMessageBytes, topicLimit } from "./Breakages.ts"
import type { Steps } from "./Ground.ts"
import { DrillFailed } from "./Teller.ts"

/** An event with so many lines takes some eight kilobytes. */
const lineCount = 100

export const oversize: Steps<OutboxDeadLetters> = Effect.fnUntraced(function* ({
  applied,
  hurt,
  operator,
  pageOf,
  pay,
  place,
  run,
  teller: { tell, until },
  timeline,
  url
}) {
  const { limit } = yield* run(limitNow)
  if (limit <= smallMessageBytes) {
    return yield* new DrillFailed({
      reason: `the topic takes no record above ${limit} bytes already: an order of this drill would never be sent. Raise its limit first`
    })
  }
  const mend = yield* hurt(topicLimit)
  yield* tell("breaks", `The topic takes no record above ${smallMessageBytes} bytes any more.`)
  const order = yield* place(lineCount)
  yield* pay(order)
  yield* tell(
    "does",
    `An order of ${lineCount} lines is placed and paid; the broker refuses its first event: ${order}.`
  )
  const delivery = Effect.map(timeline(order), ({ events }) => events.map(({ delivery }) => delivery.state))
  yield* until(
    "the broker's refusal",
    Effect.map(delivery, ([placed, paid]) => placed === "retrying" && paid === "parked")
  )
  yield* tell(
    "sees",
    "OrderPlaced is refused and tried again; OrderPaid is parked behind it, and is not sent before it.",
    pageOf(order)
  )
  const small = yield* place()
  yield* pay(small)
  yield* applied(small, 2)
  yield* tell(
    "sees",
    "A small order is placed, paid, published and applied meanwhile: nothing else waits.",
    pageOf(small)
  )

  const eventId = (yield* timeline(order)).events[0]!.eventId
  const retry = OutboxDeadLetters.use((letters) => letters.retry(eventId, operator))
  yield* tell(
    "does",
    "Its attempts would take an hour. We press retry until they are used up, as an impatient person would."
  )
  let presses = 0
  yield* until(
    "the attempts to be used up",
    Effect.flatMap(delivery, ([state]) =>
      state === "dead"
        ? Effect.succeed(true)
        : Effect.as(
            Effect.andThen(
              Effect.ignore(retry),
              Effect.sync(() => (presses += 1))
            ),
            false
          )
    ),
    () => `; retry was pressed ${presses} times`
  )
  yield* tell("sees", "It is a dead letter, and waits for a decision. Nothing drops it.", `${url}/console/dead-letters`)

  yield* mend
  yield* tell("mends", "The topic has the limit that it had before.")
  yield* Effect.orDie(retry)
  yield* tell("mends", `As an operator would: paid-once outbox retry ${eventId} --reason "…"`)
  yield* applied(order, 2)
  return []
})
