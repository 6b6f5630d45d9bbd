/**
 * The cases that are tried before any is drawn: each request, with each fault in each window between two of its effects, alone and
 * with somebody else at work on the same order. Chance takes thousands of cases to get to all of these, and most bugs are here.
 */
import type { Case, Command } from "./Case.ts"
import { consumers } from "./SystematicConsumers.ts"
import { upkeeps } from "./SystematicUpkeep.ts"
import { command, faultsAt } from "./Windows.ts"

/** What is asked once order A is there, `b` as Commands.ts reads it: pay, pay and be declined, pay and hear nothing, one event, two. */
const requests = [
  command("pay"),
  command("pay", 0, 4),
  command("pay", 0, 6),
  command("decline"),
  command("decline", 0, 4)
]

/** A payment has three effects, and one fault in front of a first and behind a last is worth a look, too. */
const clientWindows = [0, 1, 2, 3]
/** A batch is a send and a mark, a slice a commit and an offset. */
const serviceWindows = [0, 1, 2]

/** The gates of a batch, and of a slice of two. */
const serviceGates = 8

/** Where a writer idles with its transaction open: in front of the commit, and behind the first write. */
const idles = [0, 1, 3, 5].map((b) => command("lateCommit", 0, b))

const place = command("place")
const [dispatcher, consumer, worker] = [3, 4, 6]

/** Pays and hears nothing: the money has moved, or it has not. */
const unheard = [command("pay", 0, 6), command("pay", 0, 9)]
/** Whatever waits is due. */
const aMinute = command("clock", 2)

/** A recovery takes the payment up, asks the gateway, stores the outcome, and ends. */
const workerWindows = [0, 1, 2, 3, 4]

function* money(): Generator<ReadonlyArray<Command>> {
  const [pay, cancel, refund] = [command("pay"), command("cancel"), command("refund")]
  const webhook = command("webhook")
  // Somebody cancels or gives back, and is struck.
  for (const window of [0, 1]) {
    for (const fault of faultsAt(0, window)) {
      yield [place, fault, cancel]
      yield [place, pay, fault, refund]
    }
  }
  // A payment stands still, and the order is cancelled, paid again, given back; or the gateway reports first.
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
  // What nobody heard of is looked up, and whoever does that is struck; or the client comes again at the same time.
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
  // The gateway says nothing, for once or for as long as anybody asks.
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
  // One stands still past its lease, another one takes over, and the first goes on.
  for (let gate = 0; gate < serviceGates; gate++) {
    for (const task of [plain, failing]) yield [command("freeze", worker, gate), task, aMinute]
    yield [command("startWorker"), command("freeze", worker, gate), inLine, inLine, aMinute, command("thaw")]
  }
  // An operator comes while it runs, and behind it.
  for (const operate of [command("cancelTask"), command("retryTask")]) {
    yield [command("freeze", worker, 3), plain, operate, aMinute]
    yield [command("task", 0, 4), aMinute, aMinute, operate, command("retryTask")]
    yield [command("task", 0, 6), operate]
    yield [plain, operate]
  }
}

function* lists(): Generator<ReadonlyArray<Command>> {
  // Somebody asks, and is struck.
  for (const window of clientWindows) {
    for (const fault of faultsAt(0, window)) {
      yield [fault, place]
      for (const request of requests) yield [place, fault, request]
    }
  }
  // Somebody idles or is frozen in the middle, and another one comes to the same order: with another request or the same one.
  const standing = [...idles, ...clientWindows.map((window) => command("freezeAfter", 0, window))]
  for (const still of standing) {
    for (const first of requests) {
      for (const second of [command("pay", 1), command("decline", 1)]) yield [place, still, first, second]
      yield [place, still, first, command("clock", 2), command("again", 1, 1)]
    }
    yield [still, place, command("place", 1)]
    yield [still, place, command("again", 1)]
  }
  // Nothing else goes on, and the dispatcher of the one event is struck.
  for (const window of [0, 1]) for (const fault of faultsAt(dispatcher, window)) yield [fault, place]
  // A writer commits while a dispatcher stands still, which then goes on as if nothing had come in between.
  for (const idle of idles) {
    for (const window of serviceWindows) {
      const dispatcherStands = command("freezeAfter", dispatcher, window)
      for (const other of [command("place", 1), command("decline", 1)])
        yield [place, idle, command("place"), dispatcherStands, other, command("thaw", 1), command("thaw")]
    }
  }
  // One of two dispatchers, or of two consumers, stands still at each gate of its work, and there is more to do.
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
  // Asked twice, asked with another body.
  for (const request of requests) {
    yield [place, request, command("again", 1, 1)]
    yield [place, request, command("otherBody", 1, 1)]
    yield [place, command("together"), request, command("again", 1, 1)]
    for (const gate of [2, 4, 6, 8]) yield [place, command("conflict", 0, gate), request]
  }
  // An event is refused until it is dead, or struck while it is held; an operator comes early, or late.
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
  // What was placed is asked for again once the order has moved on.
  for (const request of requests) yield [place, request, command("again", 1, 0)]
  // The clock goes back between two events of an order that wait.
  yield [command("outage"), place, command("clock", 4), decline, command("outage", 1)]
  // Refused together and alone, and then accepted; and a refusal that ends while the order goes on.
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
  // A lane's floor is raised while a writer idles with a smaller number than those that are through.
  yield [command("lateCommit"), place, command("place", 1), command("raiseFloors"), command("thaw"), decline]
  yield [place, command("lateCommit"), decline, command("place", 1), command("raiseFloors"), command("thaw"), decline]
  // The broker fails while there is one event, several of an order, and several of two orders.
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

/** Choices of a short case at which somebody else may go on: past them everybody has come to rest. */
const choices = 24

/**
 * Two things at once, with one change of turn at each place where there is a choice: most bugs of concurrency need no more than one.
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

/** Archive and batch bounds as seeds give them (`settingsOf`): of seven, one with room for one event in a batch, one without archive, one without fast path. */
const seedOf = (index: number): number => (index % 7 === 4 ? 5 : index % 7 === 5 ? 4 : index % 7 === 6 ? 3 : 0)

/** All of them, short ones first. */
export const systematic: ReadonlyArray<Case> = [
  ...[...lists(), ...money(), ...tasks(), ...consumers(), ...upkeeps()]
    .map((commands) => ({ commands, switches: [] }))
    .toSorted((a, b) => a.commands.length - b.commands.length),
  ...turns()
].map((one, index) => ({ ...one, seed: seedOf(index) }))
