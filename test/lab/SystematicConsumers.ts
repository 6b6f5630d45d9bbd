/**
 * The systematic cases of consumers: each fault at each statement and fault point of a slice and of a round of attempts, with other members
 * and operators in between.
 */
import type { Command } from "./Case.ts"
import { command, faultsAt } from "./Windows.ts"

/** The command numbers for the first, the second, … gate from now (`gatesFromNow`). */
const gates = (count: number): ReadonlyArray<number> =>
  Array.from({ length: count }, (_, index) => (index < 8 ? index : index + 8))

/** The gates from a slice's start until after its offset commit, with a hold. */
const sliceGates = gates(15)
/** The gates of a round that finds one event, applies it, and ends the hold. */
const roundGates = gates(24)
/** The gates of an operator's transaction. */
const operatorGates = gates(8)

const [consumer, held] = [4, 8]

const place = command("place")
const decline = command("decline")
const [away, back] = [command("outage"), command("outage", 1)]

/** How version 1 or 2 of order A fails at the first subscriber: always, twice, or permanently; before or after the handler writes. */
const poison = (way: "always" | "twice" | "refused", version: 1 | 2 = 1, after = false): Command =>
  command("poison", 0, version - 1 + 3 * { always: 0, twice: 1, refused: 2 }[way] + (after ? 18 : 0))

const another = command("startConsumer")
const retry = command("inboxRetry")
const discard = command("inboxDiscard")
const skip = command("inboxSkip")

/** That version of another producer's aggregate, in that partition. */
const foreign = (version: number, partition = 0): Command => command("foreign", partition, version - 1)

/** Rebalances while a slice is being applied, and offsets that are set back. */
function* moves(): Generator<ReadonlyArray<Command>> {
  for (const gate of sliceGates.slice(0, 13)) {
    for (const how of gate % 2 === 0 ? [0, 1, 2, 3] : [0, 1]) yield [place, command("rebalance", how, gate), decline]
    if (gate % 2 === 1) yield [away, place, decline, decline, command("rebalance", 0, gate), back]
    if (gate < 8) yield [place, command("replay", gate % 2, 2 * gate + 1), decline]
  }
  for (const how of [0, 1, 2]) {
    yield [place, decline, command("replay", how)]
    yield [place, command("pay"), command("subscribe"), command("replay", how), decline]
    yield [place, decline, command("subscribe"), command("rebalance", 1, 9), command("replay", how)]
    for (const gate of [3, 6, 16])
      yield [another, place, command("freeze", consumer, gate), decline, command("replay", how), decline]
  }
}

/** Poison events, alone and among others. */
function* poisons(): Generator<ReadonlyArray<Command>> {
  // A second aggregate in the same partition, or in the other one.
  yield [poison("always"), place, foreign(1, 1)]
  yield [poison("always"), place, foreign(1)]
  for (const way of ["always", "twice", "refused"] as const) {
    for (const after of [false, true]) {
      yield [poison(way, 1, after), place, decline]
      yield [away, place, place, poison(way, 2, after), decline, command("decline", 0, 4), back]
      yield [command("subscribe"), { ...poison(way, 1, after), a: 1 }, away, place, place, decline, back]
    }
    yield [poison(way), place, command("replay"), decline]
    yield [poison(way), place, command("replay", 1), decline, discard, command("replay", 1)]
    yield [poison(way), poison("always", 2), place, decline, discard, decline]
    for (const operate of [retry, discard, skip]) {
      yield [poison(way), place, decline, operate]
      yield [poison(way), place, operate, decline, operate]
      yield [poison(way), place, command("together"), decline, operate, command("inboxRetry", 1, 1)]
    }
  }
  // One member parks an event that fails there, another one applies it, and then an operator decides about it.
  const once = { ...poison("twice"), a: 2 }
  for (const gate of [2, 3, 4]) {
    const stands = command("freeze", held, 2)
    for (const operate of [retry, discard, skip])
      yield [another, command("freeze", consumer, gate), once, stands, place, stands, command("thaw", 2), operate]
  }
  // A crash while an event is parked: at each gate of the attempt in which it fails alone, and after each effect.
  for (const gate of [...sliceGates, ...gates(24).slice(15)])
    yield [command("crash", consumer, gate), poison("always"), place, decline]
  for (const window of [0, 1, 2, 3]) {
    for (const fault of faultsAt(consumer, window)) {
      yield [away, poison("twice"), fault, place, decline, back]
      yield [poison("always"), place, fault, decline]
    }
  }
  // One member freezes with an event that fails at another member, and an operator decides before the first one thaws.
  for (const gate of sliceGates) {
    yield [another, command("freeze", consumer, gate), poison("always"), place, discard, command("thaw"), decline]
    if (gate % 2 === 0)
      yield [another, command("freeze", consumer, gate), poison("twice"), place, decline, command("thaw")]
  }
}

/** Rounds of attempts at holds. */
function* rounds(): Generator<ReadonlyArray<Command>> {
  for (const gate of roundGates) {
    yield [poison("twice"), command("crash", held, gate), place]
    yield [another, poison("twice"), command("freeze", held, gate), place, decline, command("thaw")]
    // Two events are parked, and the first one fails again.
    if (gate < 8) yield [away, poison("always"), place, decline, command("crash", held, gate), back]
    if (gate % 2 === 1)
      yield [another, poison("always"), command("freeze", held, gate), place, retry, discard, command("thaw")]
  }
  for (const gate of [3, 5, 7, 17, 20]) yield [poison("twice"), command("conflict", held, gate), place, decline]
  for (const window of [0, 1, 2, 3]) {
    for (const fault of faultsAt(held, window)) yield [poison("twice"), fault, place, decline]
  }
  for (const gate of operatorGates) {
    for (const operate of [retry, discard])
      yield [
        poison("refused"),
        place,
        command("freeze", 0, gate),
        operate,
        command("decline", 1),
        command("thaw"),
        decline
      ]
    yield [poison("always"), place, command("crash", 0, gate), discard, command("again", 1), decline]
  }
}

/** Records that can't be read, and missing versions. */
function* records(): Generator<ReadonlyArray<Command>> {
  for (const kind of [0, 1, 2]) {
    yield [place, command("badRecord", 0, kind), decline]
    yield [command("badRecord", 2, kind), place, discard]
    yield [
      place,
      command("badRecord", 0, kind),
      command("badRecord", 0, kind),
      decline,
      retry,
      discard,
      command("replay")
    ]
  }
  yield [place, command("badRecord"), discard, command("replay"), decline]
  yield [command("foreign", 4), command("foreign", 4, 1), place]
  yield [poison("always"), place, command("badRecord"), decline, discard, discard]
  const [first, second, third] = [foreign(1), foreign(2), foreign(3)]
  yield [second, first]
  yield [third, place, second, first]
  yield [third, first, second]
  yield [first, third, skip, second]
  yield [second, skip, first, third]
  yield [second, second, first, command("replay", 1)]
  yield [command("subscribe"), third, first, skip, command("inboxSkip", 0, 1)]
  for (const gate of sliceGates) {
    // The member that finds the gap freezes or crashes, and the missing event arrives.
    yield [another, command("freeze", consumer, gate), second, first, command("thaw"), third]
    if (gate % 2 === 1) yield [another, second, command("freeze", consumer, gate), first, third, command("thaw")]
    if (gate < 8) yield [command("crash", consumer, gate), second, first]
  }
  for (const gate of roundGates.slice(0, 16)) {
    yield [another, second, command("freeze", held, gate), first, third, command("thaw")]
    if (gate % 2 === 0) yield [second, command("crash", held, gate), skip, first]
  }
}

export function* consumers(): Generator<ReadonlyArray<Command>> {
  yield* moves()
  yield* poisons()
  yield* rounds()
  yield* records()
}
