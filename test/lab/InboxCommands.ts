/** The commands about consumers, and an operator's decisions at the end of a case. */
import { Effect } from "effect"
import { laneOf, partitionOf } from "../../src/outbox/Lane.ts"
import { ask, gatesFromNow, pick, says as tell } from "./Commands.ts"
import type { Command } from "./Case.ts"
import { brokenRecord, foreignEvent } from "./ForeignRecords.ts"
import { operateInbox } from "./InboxRequests.ts"
import type { Poison } from "./LabSubscribers.ts"
import type { World } from "./Oracle.ts"
import { partitionCount } from "./Parts.ts"
import type { Request } from "./Requests.ts"
import type { Scheduler } from "./Scheduler.ts"

/** Enough for the event to be parked after its slice was applied again in parts, and too few for a dead letter. */
const fewFailures = 2

/** How an event fails: in each attempt, in some (or one), or permanently in the first. */
const ways = [
  { failures: Infinity, isRefused: false, says: "will fail" },
  { failures: fewFailures, isRefused: false, says: "will fail twice" },
  { failures: Infinity, isRefused: true, says: "will be refused" }
] as const

/** Versions of an aggregate that may be poison, or come from another producer. */
const versions = 3

/** More records than any topic here has. */
const all = 1_000

/** Chooses the consumer (the second one where the case has it), the event, and how it fails. */
const poison = (lab: Scheduler, a: number, b: number) =>
  Effect.suspend(() => {
    const consumer = pick(lab.work.consumers.groups, a)!
    const letter = Math.floor(b / 9) % 2 === 0 ? "A" : "B"
    const name = `${letter}${1 + (b % versions)}`
    const { says, ...way } = ways[Math.floor(b / 3) % ways.length]!
    const isOnce = way.failures === fewFailures && a % 4 >= 2
    const moment: Poison["moment"] = Math.floor(b / 18) % 2 === 0 ? "before" : "after"
    lab.work.consumers.troubles.poisons.set(`${consumer} ${name}`, {
      ...way,
      moment,
      ...(isOnce ? { failures: 1 } : {})
    })
    return tell(
      lab,
      `${name} ${isOnce ? "will fail once" : says} at ${consumer}, ${moment === "before" ? "before it has" : "having"} written anything`
    )
  })

const rewind = (lab: Scheduler, a: number) =>
  Effect.gen(function* () {
    if (a % 3 === 1) {
      yield* lab.database.dropMarks
      lab.forgetMarks()
      yield* lab.observeNow
    }
    lab.work.consumers.rewind(a % 3 === 2 ? 1 : all)
    yield* tell(
      lab,
      [
        "consumers go back to the start",
        "consumers go back to the start, and their marks are gone",
        "consumers go back by one"
      ][a % 3]!
    )
  })

/** Runs `happens` in the middle of the next slice. */
const inNextSlice = (lab: Scheduler, gates: number, happens: Effect.Effect<void>) =>
  Effect.sync(() => {
    lab.ambushes.set("consumer", ({ gatesPassed }) => ({
      kind: "happens",
      at: { gate: gatesPassed + gates },
      happens: () => happens
    }))
  })

/** The events that an operator can decide about: dead letters and heads first, then parked ones. */
const handleable = ({ inbox }: World["committed"]) => {
  const letters = inbox.letters.filter(({ status }) => status === "dead")
  const heads = inbox.holds.filter(({ status }) => status !== "dead")
  const rest = inbox.waiting.filter(({ consumer, event }) =>
    heads.every((head) => head.event !== event || head.consumer !== consumer)
  )
  return [...letters, ...heads, ...rest].map(({ consumer, event }) => ({ consumer, event }))
}

export const applyInbox = (
  lab: Scheduler,
  {
    a,
    b,
    name
  }: Command & {
    readonly name:
      | "subscribe"
      | "rebalance"
      | "replay"
      | "poison"
      | "badRecord"
      | "foreign"
      | "inboxRetry"
      | "inboxDiscard"
      | "inboxSkip"
  }
): Effect.Effect<void> => {
  switch (name) {
    case "subscribe":
      return Effect.suspend(() =>
        lab.work.consumers.subscribe() ? tell(lab, "the consumers have a second subscriber, the ledger") : Effect.void
      )
    case "rebalance":
      return Effect.sync(() => {
        lab.ambushes.set("consumer", ({ gatesPassed }) => ({
          kind: "happens",
          at: { gate: gatesPassed + gatesFromNow(b) },
          happens: (actor) => {
            const process = lab.processOf(actor)
            return process.role === "consumer"
              ? lab.work.consumers.rebalance(process, { leaves: a % 2 === 1, zombieFirst: a % 4 >= 2 })
              : Effect.void
          }
        }))
      })
    case "replay":
      return b % 2 === 0 ? rewind(lab, a) : inNextSlice(lab, gatesFromNow(Math.floor(b / 2)), rewind(lab, a))
    case "poison":
      return poison(lab, a, b)
    case "badRecord":
      return Effect.suspend(() => {
        const order = a % 3 === 2 ? undefined : lab.known.get(a % 3)
        const partition = order === undefined ? b % partitionCount : partitionOf(laneOf(order), partitionCount)
        const called = lab.topic.append(partition, brokenRecord(order ?? null, b), false)
        return tell(
          lab,
          `somebody writes ${called}, which nobody can read, to partition ${partition}${order === undefined ? "" : ` under the key of ${lab.story.readable(order)}`}`
        )
      })
    case "foreign":
      return Effect.suspend(() => {
        const partition = a % partitionCount
        const version = 1 + (b % versions)
        const sent = lab.topic.sent(foreignEvent(partition, version, false), foreignEvent(partition, version, true))
        // A version that is sent again is the same event: no producer has two of one version.
        const isNewer = sent === undefined ? a % 8 >= 4 : sent === 1
        const called = lab.topic.append(partition, foreignEvent(partition, version, isNewer), !isNewer)
        return tell(
          lab,
          `somebody else writes ${called} to partition ${partition}${isNewer ? ", in a schema that nobody here knows" : ""}`
        )
      })
    case "inboxRetry":
    case "inboxDiscard":
    case "inboxSkip": {
      const event = pick(handleable(lab.committed), b)
      const what = ({ inboxRetry: "retry", inboxDiscard: "discard", inboxSkip: "skip" } as const)[name]
      return event === undefined
        ? Effect.void
        : ask(
            lab,
            a,
            operateInbox(what, { consumer: event.consumer, name: lab.topic.nameOf(event.event), id: event.event })
          )
    }
  }
}

/** An operator's decisions once handlers are repaired: redrives events that can be handled, and discards or skips the others. */
export const repairs = ({ committed: { inbox }, nameOf, records }: World): ReadonlyArray<Request> => [
  ...inbox.letters
    .filter(({ status }) => status === "dead")
    .map(({ consumer, event }) =>
      operateInbox(records.some((record) => record.event === event && record.isBad) ? "discard" : "retry", {
        consumer,
        name: nameOf(event),
        id: event
      })
    ),
  ...inbox.holds
    .filter(({ status }) => status === "gap")
    .map(({ consumer, event }) => operateInbox("skip", { consumer, name: nameOf(event), id: event }))
]
