/**
 * The drill `zombie`: a dispatcher is frozen with a batch in its hands, its lanes go to another one, and it wakes up and sends. The late send can only
 * repeat an event: consumers drop it.
 */
import { Effect } from "effect"
import { randomUUID } from "node:crypto"
import { consumerNames } from "../../main/Names.ts"
import { LaneReport } from "../../operations/reports/LaneReport.ts"
import { laneOf } from "../../outbox/Lane.ts"
import * as ServiceProcess from "../ServiceProcess.ts"
import { dispatcherOf } from "./Breakages.ts"
import { copiesOf } from "./Copies.ts"
import type { Steps } from "./Ground.ts"
import * as ProcessToken from "./ProcessToken.ts"
import { DrillFailed } from "./Teller.ts"

/** Between fetch and send of each batch the zombie waits for so long: time enough to freeze it there. */
const pauseMillis = 1_000
/** More batches than it sends in any drill. */
const pauses = 1_000_000

/** How long the frozen process keeps its lanes: the person who watches waits for so long. Longer than the pause, so it sends first when it is thawed. */
const sessionMillis = 3_000

/** Half of all orders are in its lanes: that none of so many is does not happen. */
const tries = 20

const inherited = (): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(process.env).filter(
      (entry): entry is [string, string] => entry[1] !== undefined && entry[0] !== "PORT"
    )
  )

export const zombie: Steps<LaneReport> = Effect.fnUntraced(function* ({
  applied,
  hurt,
  pageOf,
  pay,
  place,
  run,
  teller: { tell, until },
  timeline,
  url
}) {
  const token = randomUUID()
  const forget = yield* hurt(dispatcherOf(token))
  const child = yield* ServiceProcess.start({
    roles: "dispatcher",
    env: {
      ...inherited(),
      ...ProcessToken.envOf(token),
      FAULTS: `dispatcher.before-publish=delay:${pauses}:${pauseMillis}`,
      LOG_LEVEL: "Warn",
      OUTBOX_SESSION_TIMEOUT_MILLIS: String(sessionMillis),
      OUTBOX_SEND_TIMEOUT_MILLIS: String(sessionMillis / 2)
    }
  }).pipe(Effect.mapError(({ message }) => new DrillFailed({ reason: message })))
  yield* tell("does", `A second dispatcher of this service starts, as process ${child.pid}.`, `${url}/console`)
  const owned = LaneReport.use((report) =>
    Effect.map(report.lanes, (lanes) => lanes.filter(({ owner }) => owner?.startsWith(`${child.pid}@`)))
  )
  const ownsLanes = Effect.map(owned, (lanes) => lanes.length > 0)
  const batches = () => child.output().split("a fault strikes on purpose").length

  /** Freezes it after an order was placed, and thaws it when its lanes are gone. Returns what it has sent late: undefined if it had no event of the order. */
  const freeze = Effect.gen(function* () {
    yield* until("it to have its share of the lanes", ownsLanes)
    const before = batches()
    const order = yield* place()
    if ((yield* owned).every(({ lane }) => lane !== laneOf(order))) return undefined
    const events = Effect.map(timeline(order), (view) => view.events)
    const isPublished = Effect.map(events, ([first]) => first?.delivery.state === "published")
    yield* until(
      "its event to be fetched",
      Effect.map(isPublished, (isSent) => isSent || batches() > before)
    )
    if (yield* isPublished) return undefined
    yield* child.signal("SIGSTOP")
    yield* tell(
      "breaks",
      `It is frozen (SIGSTOP) between fetch and send, with the event of this order: ${order}.`,
      pageOf(order)
    )
    yield* pay(order)
    yield* until(
      "its lanes to go to another dispatcher",
      Effect.map(events, (all) => all.length === 2 && all.every(({ delivery }) => delivery.state === "published"))
    )
    yield* tell(
      "sees",
      "Its session ended, the lane went to another dispatcher, and that one has sent OrderPlaced and OrderPaid, in this order.",
      pageOf(order)
    )
    const eventId = (yield* events)[0]!.eventId
    const copies = run(copiesOf(order, eventId))
    const { records } = yield* copies
    yield* child.signal("SIGCONT")
    yield* tell("breaks", "The zombie is thawed (SIGCONT), and believes that the lane is its own.")
    const isSentLate = Effect.map(copies, (now) => now.records > records)
    yield* until(
      "its late send",
      Effect.map(Effect.all([isSentLate, ownsLanes]), ([isLate, isBack]) => isLate || isBack)
    )
    if (yield* isSentLate) return { copies, eventId, order }
    yield* tell("sees", "It had another customer's event in its hands: once more.")
    return undefined
  })

  let late = yield* freeze
  for (let number = 1; number < tries && late === undefined; number++) late = yield* freeze
  if (late === undefined) {
    return yield* new DrillFailed({
      reason: `the second dispatcher had none of ${tries} orders in its hands when it was frozen: the service is too busy`
    })
  }
  const { copies, eventId, order } = late
  const { offsets } = yield* copies
  yield* tell(
    "sees",
    `It has sent OrderPlaced once more: the topic has it at the offsets ${offsets}. Consumers have seen version 1, and drop it.`,
    `${url}/console/events/${eventId}`
  )
  yield* child.signal("SIGTERM")
  yield* child.exit
  yield* forget
  yield* tell("mends", "The second dispatcher is stopped. Nothing else is to be mended.")
  yield* applied(order, 2)
  yield* until(
    "all consumers to read the last record",
    Effect.map(copies, ({ readers }) => readers === consumerNames.length)
  )
  const { marks, records } = yield* copies
  return [
    [`${records} records of one event in the topic`, records === 2],
    [`${marks} consumers of ${consumerNames.length} have applied it, once each`, marks === consumerNames.length]
  ]
})
