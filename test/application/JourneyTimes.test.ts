/** The times of a journey's hops where clocks disagree: what was stored is shown, and nothing is made up. */
import { assert, it } from "@effect/vitest"
import type { Facts } from "../../src/application/views/JourneyFacts.ts"
import type { Skip } from "../../src/operations/Skips.ts"
import { legsOf } from "../../src/application/views/JourneyLegs.ts"

const at = (millis: number) => new Date(Date.UTC(2026, 10, 24) + millis).toISOString()
const eventId = "01890a5d-ac96-774b-bcce-b302099a8057"

/** The leg of an order whose row, mark and effect have these times. */
const legOf = (times: {
  readonly drawn: number
  readonly committed: number
  readonly marked: number
  readonly applied: number
}) => {
  const facts: Facts = {
    at: at(10_000),
    drawnAt: at(times.drawn),
    events: [
      {
        eventId,
        version: 1,
        type: "OrderPlaced",
        topic: "orders",
        occurredAt: at(times.committed),
        drawnAt: at(times.drawn),
        endedAt: null,
        traceId: null,
        paymentId: null,
        status: "published",
        partition: 5,
        offset: "7",
        publishedAt: at(times.marked),
        attempts: null,
        nextAttemptAt: null,
        lastError: null
      }
    ],
    effects: [
      {
        consumer: "billing",
        eventId,
        state: "applied",
        at: at(times.applied),
        attempts: null,
        nextAttemptAt: null,
        lastError: null
      }
    ],
    holds: [],
    mails: [],
    payments: [],
    recoveries: []
  }
  const around = {
    facts,
    consumers: ["billing"],
    applied: new Set<string>(),
    skips: [] as ReadonlyArray<Skip>,
    paused: [],
    lane: 37,
    laneOwner: "1@here",
    lags: []
  }
  return { around, leg: legsOf(around, true)[0]! }
}

const hopsOf = (times: Parameters<typeof legOf>[0]) =>
  new Map(legOf(times).leg.hops.map(({ id, millis, process, since }) => [id, { since, millis, process }]))

it("a version that an operator skipped for a consumer says who did it and why, though the consumer has read on", () => {
  const { around } = legOf({ drawn: 0, committed: 4, marked: 20, applied: 25 })
  const lags = [
    {
      consumer: "billing",
      topic: "orders",
      lag: 0,
      unknown: null,
      partitions: [{ partition: 5, end: "9", committed: "9", lag: 0, owner: "1@here" }]
    }
  ]
  const unmarked = { ...around, facts: { ...around.facts, effects: [] }, lags }
  const skip = { consumer: "billing", eventId, at: at(30), actor: "ada", reason: "booked by hand" }
  const atBilling = (skips: (typeof around)["skips"]) => {
    const { state, why } = legsOf({ ...unmarked, skips }, true)[0]!.hops.find(({ id }) => id === "consumer billing")!
    return { state, why }
  }
  assert.deepStrictEqual(atBilling([skip]), {
    state: "discarded",
    why: "it had not come, and ada let this consumer go on without it: booked by hand"
  })
  assert.strictEqual(atBilling([{ ...skip, consumer: "receipts" }]).state, "dropped")
})

it("each hop is timed since the one before it, and what is done names no process", () => {
  const hops = hopsOf({ drawn: 0, committed: 4, marked: 20, applied: 25 })
  assert.deepStrictEqual(Object.fromEntries(hops), {
    request: { since: null, millis: null, process: null },
    commit: { since: "request", millis: 4, process: null },
    lane: { since: "commit", millis: 0, process: null },
    broker: { since: "lane", millis: 16, process: null },
    "consumer billing": { since: "broker", millis: 5, process: null }
  })
})

it("a consumer that is done before the mark is written is timed since the lane, not since a later time", () => {
  const hops = hopsOf({ drawn: 0, committed: 4, marked: 20, applied: 13 })
  assert.deepInclude(hops.get("consumer billing"), { since: "lane", millis: 9 })
})

it("an id's time that is ahead of the database's clock times nothing", () => {
  const hops = hopsOf({ drawn: 6, committed: 4, marked: 20, applied: 25 })
  assert.deepInclude(hops.get("commit"), { since: null, millis: null })
})
