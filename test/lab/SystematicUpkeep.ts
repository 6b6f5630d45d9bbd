/**
 * The systematic cases of upkeep: it makes and drops days while other actors wait or are frozen, or come late with rows of a day that is
 * over.
 */
import type { Command } from "./Case.ts"
import { command } from "./Windows.ts"

const dispatcher = 3
const consumer = 4

const place = command("place")
const decline = command("decline")
const [away, back] = [command("outage"), command("outage", 1)]
const thaw = command("thaw")
const poison = command("poison")

/** Time passes until the day of the case's start is past its retention, and upkeep runs. */
const upkeep = command("upkeep")
/** Upkeep runs, and no time passes before. */
const upkeepNow = command("upkeep", 1)
/** The day of the case's start is over; after a second one it is past its retention. */
const day = command("later")

/** The command number for the n-th gate from now (`gatesFromNow`). */
const nth = (gate: number): number => (gate < 9 ? gate - 1 : gate + 7)

/** The drop of a day with rows: before the second check, which holds the lock, and before the commit. */
const dropGates = [14, 17]
/** The drop of an empty day: before the transaction, after the first check, before the second one, and before the drop. */
const emptyDropGates = [9, 13, 14]

export function* upkeeps(): Generator<ReadonlyArray<Command>> {
  yield [upkeep, place, upkeep, decline]
  yield [place, upkeep, command("replay"), decline]
  // An event that waited out an outage is published after its day is over, or dropped. It is kept, and expires by its own time.
  yield [away, place, day, day, back, upkeepNow]
  yield [away, place, day, day, back, upkeepNow, upkeep]
  yield [away, place, upkeep, back, upkeep, decline]
  // A rejected event is held, or a dead letter, for longer than its day is kept. It is kept as well.
  yield [away, place, decline, command("reject"), day, day, back, upkeepNow]
  yield [command("refuseAll"), place, decline, upkeep, command("redrive", 1), command("refuseAll", 1), upkeepNow]
  yield [poison, place, upkeep, command("inboxRetry"), decline]
  // A dispatcher with an event freezes before the ack or the mark while the event's day is dropped. So does one with a hold.
  for (const gate of [5, 7])
    yield [command("startDispatcher"), command("freeze", dispatcher, nth(gate)), place, upkeep, decline]
  yield [away, place, decline, command("reject"), command("freezeAfter", dispatcher, 2), back, upkeep, thaw]
  // A consumer freezes in the middle of its transaction, and keeps upkeep waiting.
  yield [command("freeze", consumer, nth(7)), place, upkeep, thaw, decline]
  // Upkeep freezes or crashes while other actors run, and a day that it has checked gets a young row.
  for (const gate of dropGates) yield [place, command("freeze", 0, nth(gate)), upkeep, command("decline", 1), thaw]
  yield [place, command("crash", 0, nth(17)), upkeep, decline, upkeepNow]
  for (const gate of emptyDropGates)
    yield [away, place, day, day, command("freeze", 0, nth(gate)), upkeepNow, back, thaw]
  // Two rounds of upkeep at once.
  for (const gate of [2, 17]) yield [place, command("freeze", 0, nth(gate)), upkeep, command("upkeep", 1, 1), thaw]
}
