/** The drill `lost-ack`: the broker has stored an event, its acknowledgement is lost, the event is sent again, and applied once. */
import { Effect } from "effect"
import { consumerNames } from "../../main/Names.ts"
import { copiesOf } from "./Copies.ts"
import type { Steps } from "./Ground.ts"
import { DrillFailed } from "./Teller.ts"

/** The fault strikes the next batch of any process. On a busy service that may be another customer's. */
const tries = 10

export const lostAck: Steps = Effect.fnUntraced(function* ({
  applied,
  arm,
  pageOf,
  pay,
  place,
  run,
  teller: { tell, until },
  timeline,
  url
}) {
  for (let number = 1; number <= tries; number++) {
    const clear = yield* arm("dispatcher.before-publish", "lose-ack")
    yield* tell(
      "breaks",
      "The next batch reaches the broker, and its acknowledgement is lost (faults set dispatcher.before-publish lose-ack).",
      `${url}/console/break-it`
    )
    const order = yield* place()
    yield* tell("does", `An order is placed: ${order}.`, pageOf(order))
    const event = Effect.map(timeline(order), ({ events }) => events[0])
    yield* until(
      "its event to be published",
      Effect.map(event, (one) => one?.delivery.state === "published")
    )
    yield* clear
    const eventId = (yield* event)!.eventId
    const copies = run(copiesOf(order, eventId))
    const { offsets, records } = yield* copies
    if (records < 2) {
      yield* tell("sees", "The fault has struck another customer's batch: once more.")
      continue
    }
    yield* tell(
      "sees",
      `The dispatcher took the send for failed, and sent the event again: the topic has it at the offsets ${offsets}, with one event-id.`,
      `${url}/console/events/${eventId}`
    )
    yield* tell("mends", "Nothing is to be mended: the fault has struck once, and is used up.")
    yield* pay(order)
    yield* applied(order, 2)
    yield* until(
      "all consumers to read the last record",
      Effect.map(copies, ({ readers }) => readers === consumerNames.length)
    )
    const { marks } = yield* copies
    return [
      [`${records} records of one event in the topic`, records === 2],
      [`${marks} consumers of ${consumerNames.length} have applied it, once each`, marks === consumerNames.length]
    ]
  }
  return yield* new DrillFailed({
    reason: `the fault struck other customers' batches ${tries} times: the service is too busy`
  })
})
