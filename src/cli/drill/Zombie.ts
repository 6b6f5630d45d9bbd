/**
 * The drill `zombie`: a dispatcher is frozen with a batch in its hands, its lanes go to another one, and it wakes up and sends. The late send can only
 * repeat an event: consumers drop it.
 */
import { Clock, Effect } from "effect"
import { randomUUID } from "node:crypto"
import { consumerNames } from "../../main/Names.ts"
import { LaneReport } from "../../operations/reports/LaneReport.ts"
import * as ServiceProcess from "../ServiceProcess.ts"
import { dispatcherOf } from "./Breakages.ts"
import { copiesOf } from "./Copies.ts"
import type { Steps } from "./Ground.ts"
import * as ProcessToken from "./ProcessToken.ts"
import { DrillFailed } from "./Teller.ts"

/** Between fetch and send the zombie waits for so long: time enough to freeze it there. */
const pauseMillis = 3_000

/** How long the frozen process keeps its lanes: the person who watches waits for so long. */
const sessionMillis = 3_000

/** Half of all orders are in its lanes: that none of so many is does not happen. */
const tries = 40

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
      FAULTS: `dispatcher.before-publish=delay:1:${pauseMillis}`,
      LOG_LEVEL: "Warn",
      OUTBOX_SESSION_TIMEOUT_MILLIS: String(sessionMillis),
      OUTBOX_SEND_TIMEOUT_MILLIS: String(sessionMillis / 2)
    }
  }).pipe(Effect.mapError(({ message }) => new DrillFailed({ reason: message })))
  yield* tell("does", `A second dispatcher of this service starts, as process ${child.pid}.`, `${url}/console`)
  const lanes = LaneReport.use((report) => report.lanes)
  const owned = Effect.map(lanes, (all) => all.filter(({ owner }) => owner?.startsWith(`${child.pid}@`)).length)
  yield* until(
    "it to have its share of the lanes",
    Effect.map(owned, (count) => count > 0)
  )

  const hasBatch = () => child.output().includes("a fault strikes on purpose")
  let order = ""
  for (let number = 1; number <= tries && !hasBatch(); number++) {
    order = yield* place()
    const state = Effect.map(timeline(order), ({ events }) => events[0]?.delivery.state)
    yield* until(
      "its event to be fetched",
      Effect.map(state, (now) => now === "published" || hasBatch())
    )
  }
  if (!hasBatch())
    return yield* new DrillFailed({ reason: `none of ${tries} orders was in the lanes of the second dispatcher` })
  yield* child.signal("SIGSTOP")
  const frozenAt = yield* Clock.currentTimeMillis
  yield* tell(
    "breaks",
    `It is frozen (SIGSTOP) between fetch and send, with the event of this order: ${order}.`,
    pageOf(order)
  )
  yield* pay(order)
  const events = Effect.map(timeline(order), (view) => view.events)
  yield* until(
    "its lanes to go to another dispatcher",
    Effect.map(events, (all) => all.length === 2 && all.every(({ delivery }) => delivery.state === "published"))
  )
  const eventId = (yield* events)[0]!.eventId
  const copies = run(copiesOf(order, eventId))
  yield* tell(
    "sees",
    "Its session ended, the lane went to another dispatcher, and that one has sent OrderPlaced and OrderPaid, in this order.",
    pageOf(order)
  )
  const before = yield* copies
  // With its pause over, it sends first when it is thawed. Otherwise it may see first that its session has ended, and not send at all.
  yield* Effect.sleep(Math.max(0, frozenAt + pauseMillis - (yield* Clock.currentTimeMillis)))
  yield* child.signal("SIGCONT")
  yield* tell(
    "breaks",
    "The zombie is thawed (SIGCONT), believes that the lane is its own, and sends OrderPlaced once more."
  )
  yield* until(
    "its late send",
    Effect.map(copies, ({ records }) => records > before.records)
  )
  const { offsets } = yield* copies
  yield* tell(
    "sees",
    `The topic has OrderPlaced at the offsets ${offsets}. Consumers have seen version 1, and drop it.`,
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
