/** The systematic cases of upkeep: days made and dropped while somebody waits, stands still, or comes late with what is of a day long past. */
import type { Command } from "./Case.ts"
import { command } from "./Windows.ts"

const dispatcher = 3
const consumer = 4

const place = command("place")
const decline = command("decline")
const [away, back] = [command("outage"), command("outage", 1)]
const thaw = command("thaw")
const poison = command("poison")

/** The day of the case's start is past its retention, and is looked at. */
const upkeep = command("upkeep")
/** The same with nothing passing before. */
const upkeepNow = command("upkeep", 1)
/** The day of the case's start is over, and after a second one past its retention. */
const day = command("later")

/** The number with which a command means the n-th gate from now (`gatesFromNow`). */
const nth = (gate: number): number => (gate < 9 ? gate - 1 : gate + 7)

/** The drop of a day that holds something: in front of the second look, which has the lock, and of the commit. */
const dropGates = [14, 17]
/** The drop of an empty day: in front of the transaction, behind the first look, of the second one, and of the drop. */
const emptyDropGates = [9, 13, 14]

export function* upkeeps(): Generator<ReadonlyArray<Command>> {
  yield [upkeep, place, upkeep, decline]
  yield [place, upkeep, command("replay"), decline]
  // What waited out an outage is published into a day that is over, or when that is gone; it is kept, and goes in its own time.
  yield [away, place, day, day, back, upkeepNow]
  yield [away, place, day, day, back, upkeepNow, upkeep]
  yield [away, place, upkeep, back, upkeep, decline]
  // So is what was refused: it is held, or dead, for longer than its day is kept.
  yield [away, place, decline, command("reject"), day, day, back, upkeepNow]
  yield [command("refuseAll"), place, decline, upkeep, command("redrive", 1), command("refuseAll", 1), upkeepNow]
  yield [poison, place, upkeep, command("inboxRetry"), decline]
  // A dispatcher stands still with an event, in front of the ack and of the mark, while its day is dropped; so does one with a hold.
  for (const gate of [5, 7])
    yield [command("startDispatcher"), command("freeze", dispatcher, nth(gate)), place, upkeep, decline]
  yield [away, place, decline, command("reject"), command("freezeAfter", dispatcher, 2), back, upkeep, thaw]
  // A consumer does in the middle of its transaction, and keeps upkeep waiting.
  yield [command("freeze", consumer, nth(7)), place, upkeep, thaw, decline]
  // Upkeep stands still, or dies, while others go on; and what it has looked through gets something young.
  for (const gate of dropGates) yield [place, command("freeze", 0, nth(gate)), upkeep, command("decline", 1), thaw]
  yield [place, command("crash", 0, nth(17)), upkeep, decline, upkeepNow]
  for (const gate of emptyDropGates)
    yield [away, place, day, day, command("freeze", 0, nth(gate)), upkeepNow, back, thaw]
  // Two of them.
  for (const gate of [2, 17]) yield [place, command("freeze", 0, nth(gate)), upkeep, command("upkeep", 1, 1), thaw]
}
