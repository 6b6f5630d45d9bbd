/**
 * The systematic cases, which run before the drawn ones: each request with each fault in each window between two of its effects, alone and
 * with another actor at work on the same order. Drawn cases need thousands to reach all of these, and most bugs are here.
 */
import type { Case, Command } from "./Case.ts"
import { consumers } from "./SystematicConsumers.ts"
import { upkeeps } from "./SystematicUpkeep.ts"
import { command, faultsAt } from "./Windows.ts"

/** The requests about order A, with `b` as Commands.ts reads it: pay, pay and be declined, pay without an answer, one event, two events. */
const requests = [
  command("pay"),
  command("pay", 0, 4),
  command("pay", 0, 6),
  command("decline"),
  command("decline", 0, 4)
]

/** A payment has three effects. The windows before the first and after the last are included. */
const clientWindows = [0, 1, 2, 3]
/** A batch is a send and a mark, a slice a commit and an offset. */
const serviceWindows = [0, 1, 2]

/** The gates of a batch, and of a slice of two records. */
const serviceGates = 8

/** Where a writer idles with its transaction open: before the commit, and after the first write. */
const idles = [0, 1, 3, 5].map((b) => command("lateCommit", 0, b))

const place = command("place")
const [dispatcher, consumer, worker] = [3, 4, 6]

/** Payments without an answer: the money has moved, or it has not. */
const unheard = [command("pay", 0, 6), command("pay", 0, 9)]
/** After a minute everything that waits is due. */
const aMinute = command("clock", 2)

/** The effects of a recovery: claim the task, ask the gateway, store the outcome, end the task. */
const workerWindows = [0, 1, 2, 3, 4]

function* money(): Generator<ReadonlyArray<Command>> {
  const [pay, cancel, refund] = [command("pay"), command("cancel"), command("refund")]
  const webhook = command("webhook")
  // A cancel or a refund meets a fault.
  for (const window of [0, 1]) {
    for (const fault of faultsAt(0, window)) {
      yield [place, fault, cancel]
      yield [place, pay, fault, refund]
    }
  }
  // A payment freezes, and the order is cancelled, paid again or refunded; or the gateway reports first.
  const standing = [...idles, ...clientWindows.map((window) => command("freezeAfter", 0, window))]
  for (const still of standing) {
    for (const first of [pay, command("pay", 0, 4), unheard[0]!]) yield [place, still, first, command("cancel", 1)]
    yield [place, still, pay, command("webhook", 1)]
    yield [place, still, pay, command("refund", 1)]
    yield [place, still, pay, command("webhook", 1), command("refund", 1)]
    yield [place, still, pay, aMinute, command("cancel", 1)]
    yield [place, still, cancel, command("pay", 1)]
    yield [place, pay, still, refund, command("refund", 1)]
  }
  // A payment with an unknown outcome is recovered, and the worker meets a fault; or the client repeats its request at the same time.
  for (const paying of unheard) {
    for (const window of workerWindows)
      for (const fault of faultsAt(worker, window)) yield [place, fault, paying, aMinute]
    for (const window of workerWindows.slice(0, 4)) {
      yield [place, command("freezeAfter", worker, window), paying, aMinute, command("again", 1, 1)]
      yield [place, command("freezeAfter", worker, window), paying, aMinute, command("cancel", 1)]
    }
    for (const hours of [0, 1, 2]) {
      yield [place, paying, command("later", hours)]
      yield [place, paying, cancel, command("later", hours)]
      yield [place, paying, command("gatewayFails"), aMinute, command("later", hours)]
    }
    yield [place, paying, webhook, aMinute]
    yield [place, paying, webhook, webhook, command("again", 1, 2)]
    yield [place, paying, command("again", 1, 1), cancel]
  }
  for (const window of workerWindows) {
    for (const fault of faultsAt(worker, window)) {
      yield [place, pay, fault, refund]
      if (window > 0) yield [place, command("freezeAfter", 0, 1), pay, command("cancel", 1), fault, aMinute]
    }
  }
  // The gateway does not answer, once or always.
  for (const b of [0, 1]) {
    const silent = command("gatewayFails", 0, b)
    yield [place, silent, pay]
    yield [place, pay, silent, refund]
    yield [place, pay, silent, silent, refund, webhook]
    yield [place, pay, refund, silent, silent, command("later", 1)]
    yield [place, silent, silent, silent, silent, pay, aMinute, aMinute, aMinute]
    yield [place, silent, silent, silent, silent, pay, aMinute, aMinute, aMinute, cancel]
  }
  yield [webhook]
  yield [place, pay, webhook, webhook, refund, webhook, command("again", 1, 2)]
}

function* tasks(): Generator<ReadonlyArray<Command>> {
  const [plain, inLine, failing] = [command("task"), command("task", 0, 1), command("task", 0, 2)]
  for (const b of [0, 1, 2, 4, 6]) yield [command("task", 0, b)]
  for (const fault of faultsAt(0, 0)) yield [fault, plain]
  for (const window of workerWindows.slice(0, 4))
    for (const fault of faultsAt(worker, window)) for (const task of [plain, failing]) yield [fault, task]
  // One worker freezes until its lease has expired, another one takes the task, and the first one thaws.
  for (let gate = 0; gate < serviceGates; gate++) {
    for (const task of [plain, failing]) yield [command("freeze", worker, gate), task, aMinute]
    yield [command("startWorker"), command("freeze", worker, gate), inLine, inLine, aMinute, command("thaw")]
  }
  // An operator cancels or retries a task while it runs, or after it.
  for (const operate of [command("cancelTask"), command("retryTask")]) {
    yield [command("freeze", worker, 3), plain, operate, aMinute]
    yield [command("task", 0, 4), aMinute, aMinute, operate, command("retryTask")]
    yield [command("task", 0, 6), operate]
    yield [plain, operate]
  }
}

function* lists(): Generator<ReadonlyArray<Command>> {
  // A request meets a fault.
  for (const window of clientWindows) {
    for (const fault of faultsAt(0, window)) {
      yield [fault, place]
      for (const request of requests) yield [place, fault, request]
    }
  }
  // A writer idles or is frozen in its transaction, and another request for the same order comes, a different one or the same.
  const standing = [...idles, ...clientWindows.map((window) => command("freezeAfter", 0, window))]
  for (const still of standing) {
    for (const first of requests) {
      for (const second of [command("pay", 1), command("decline", 1)]) yield [place, still, first, second]
      yield [place, still, first, command("clock", 2), command("again", 1, 1)]
    }
    yield [still, place, command("place", 1)]
    yield [still, place, command("again", 1)]
  }
  // One event, and its dispatcher meets a fault.
  for (const window of [0, 1]) for (const fault of faultsAt(dispatcher, window)) yield [fault, place]
  // A writer commits while a dispatcher is frozen, and then the dispatcher thaws.
  for (const idle of idles) {
    for (const window of serviceWindows) {
      const dispatcherStands = command("freezeAfter", dispatcher, window)
      for (const other of [command("place", 1), command("decline", 1)])
        yield [place, idle, command("place"), dispatcherStands, other, command("thaw", 1), command("thaw")]
    }
  }
  // One of two dispatchers, or of two consumers, freezes at each gate of its work, and more events follow.
  for (let gate = 0; gate < serviceGates; gate++) {
    yield [
      place,
      command("startDispatcher"),
      command("freeze", dispatcher, gate),
      command("decline"),
      command("decline")
    ]
    yield [place, command("startDispatcher"), command("freeze", dispatcher, gate), command("decline", 0, 4)]
    yield [place, command("startConsumer"), command("freeze", consumer, gate), command("decline"), command("decline")]
  }
  // A request is repeated, with the same body and with another one.
  for (const request of requests) {
    yield [place, request, command("again", 1, 1)]
    yield [place, request, command("otherBody", 1, 1)]
    yield [place, command("together"), request, command("again", 1, 1)]
    for (const gate of [2, 4, 6, 8]) yield [place, command("conflict", 0, gate), request]
  }
  // An event is rejected until it is a dead letter, or a fault strikes while it is held. An operator decides early or late.
  const refused = [command("reject"), command("reject"), command("reject")]
  const decline = command("decline")
  for (const operate of [command("redrive", 1), command("discard", 1)]) {
    yield [command("outage"), place, ...refused, command("outage", 1), decline, operate]
    yield [command("outage"), place, decline, ...refused, command("outage", 1), operate, decline]
    yield [command("refuseAll"), place, decline, operate, decline, command("refuseAll", 1)]
    yield [command("outage"), place, ...refused, command("outage", 1), command("together"), decline, operate, decline]
  }
  for (const window of [0, 1, 2, 3, 4]) {
    for (const fault of faultsAt(dispatcher, window)) {
      yield [command("outage"), place, decline, command("reject"), fault, command("outage", 1), decline]
      yield [command("outage"), place, ...refused, fault, command("outage", 1), decline]
    }
  }
  // A place is repeated after the order has changed.
  for (const request of requests) yield [place, request, command("again", 1, 0)]
  // The clock goes back between two queued events of an order.
  yield [command("outage"), place, command("clock", 4), decline, command("outage", 1)]
  // Two events are rejected together and alone, and then accepted; and rejections end while the order gets a new event.
  for (const second of [decline, command("decline", 0, 4)]) {
    yield [command("outage"), place, second, command("reject"), command("reject"), command("outage", 1)]
    yield [
      command("outage"),
      place,
      second,
      command("refuseAll"),
      command("outage", 1),
      command("refuseAll", 1),
      decline
    ]
  }
  // A lane's low-water mark is raised while a writer idles with a smaller number than published events.
  yield [command("lateCommit"), place, command("place", 1), command("raiseFloors"), command("thaw"), decline]
  yield [place, command("lateCommit"), decline, command("place", 1), command("raiseFloors"), command("thaw"), decline]
  // The broker fails while one event is queued, several of one order, and several of two orders.
  const backlogs = [
    [place],
    [place, command("decline")],
    [place, place, command("decline"), command("decline", 0, 1)],
    [place, command("decline", 0, 4)]
  ]
  const sends = [command("loseAck"), command("appendLate"), command("reject"), command("refuseAll")]
  for (const backlog of backlogs) {
    for (const fault of [...sends, ...serviceWindows.flatMap((window) => faultsAt(dispatcher, window))]) {
      yield [command("outage"), ...backlog, fault, command("outage", 1)]
      yield [command("outage"), ...backlog, fault, command("outage", 1), command("decline")]
    }
    for (const fault of [
      command("handlerFails"),
      command("handlerFails", 0, 1),
      ...serviceWindows.flatMap((window) => faultsAt(consumer, window))
    ])
      yield [command("outage"), ...backlog, fault, command("outage", 1)]
  }
}

/** The choices of a short case at which another actor may run. After them all actors are idle. */
const choices = 24

/**
 * Two requests at once, with one change of actor at each choice: most concurrency bugs need no more than one.
 * Source: "Iterative Context Bounding for Systematic Testing of Multithreaded Programs", Musuvathi and Qadeer, 2007.
 */
function* turns(): Generator<Pick<Case, "commands" | "switches">> {
  const together = command("together")
  const pairs = [
    [together, place, command("place", 1)],
    [place, together, command("decline"), command("decline", 1)],
    [place, together, command("pay"), command("decline", 1)]
  ]
  for (const commands of pairs) {
    for (let at = 0; at < choices; at++) for (const to of [1, 2]) yield { commands, switches: [{ at, to }] }
  }
}

/**
 * The seeds that vary the settings (`settingsOf`). Of seven cases one has room for one event in a batch, one has no archive, one has no
 * fast path.
 */
const seedOf = (index: number): number => (index % 7 === 4 ? 5 : index % 7 === 5 ? 4 : index % 7 === 6 ? 3 : 0)

/** All systematic cases, short ones first. */
export const systematic: ReadonlyArray<Case> = [
  ...[...lists(), ...money(), ...tasks(), ...consumers(), ...upkeeps()]
    .map((commands) => ({ commands, switches: [] }))
    .toSorted((a, b) => a.commands.length - b.commands.length),
  ...turns()
].map((one, index) => ({ ...one, seed: seedOf(index) }))
