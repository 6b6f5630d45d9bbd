/** The pace of records from looks at the broker's offsets: as a table, without a broker. */
import { assert, it } from "@effect/vitest"
import { paceOf } from "../../src/operations/reports/ConsumerPace.ts"

interface Offsets {
  readonly atSeconds: number
  /** The end of each partition. */
  readonly ends: ReadonlyArray<number>
  /** How much each consumer has yet to read of each partition. */
  readonly lags: Readonly<Record<string, ReadonlyArray<number>>>
}

const look = ({ atSeconds, ends, lags }: Offsets) => ({
  atMillis: atSeconds * 1_000,
  ends: new Map(ends.map((end, partition) => [`orders/${partition}`, end])),
  lags: Object.entries(lags).map(([consumer, behind]) => ({
    consumer,
    topic: "orders",
    lag: behind.reduce((sum, lag) => sum + lag, 0),
    unknown: null,
    partitions: behind.map((lag, partition) => ({
      partition,
      end: String(ends[partition]),
      committed: String(ends[partition]! - lag),
      lag,
      owner: null
    }))
  }))
})

const paceOfLooks = (...looks: ReadonlyArray<Offsets>) => paceOf(looks.map(look))

it("two looks tell how many records came, and how many each consumer has done with", () => {
  const pace = paceOfLooks(
    { atSeconds: 0, ends: [100, 200], lags: { billing: [0, 0], receipts: [50, 50] } },
    { atSeconds: 5, ends: [110, 240], lags: { billing: [5, 0], receipts: [0, 50] } }
  )
  assert.strictEqual(pace.publishedPerSecond, 10)
  assert.deepStrictEqual(pace.handledPerSecond, { billing: 9, receipts: 20 })
})

it("one look tells no pace, nor do two far apart, or of a topic that was made anew", () => {
  const one = { atSeconds: 0, ends: [100], lags: { billing: [0] } }
  const unknown = { publishedPerSecond: null, handledPerSecond: {}, lagSecondsWorst: 0 }
  assert.deepStrictEqual(paceOfLooks(one), unknown)
  assert.deepStrictEqual(paceOfLooks(one, { ...one, atSeconds: 60 }), unknown)
  assert.deepStrictEqual(paceOfLooks(one, { atSeconds: 5, ends: [3], lags: { billing: [0] } }), unknown)
})

it("a broker that gives no answer leaves all unknown", () => {
  const none = { publishedPerSecond: null, handledPerSecond: {}, lagSecondsWorst: null }
  assert.deepStrictEqual(paceOfLooks({ atSeconds: 0, ends: [], lags: {} }), none)
  assert.deepStrictEqual(
    paceOfLooks({ atSeconds: 0, ends: [7], lags: { billing: [0] } }, { atSeconds: 5, ends: [], lags: {} }),
    none
  )
})

it("the oldest record that a consumer has not read is as old as the look that first saw it", () => {
  const looks = [
    { atSeconds: 0, ends: [100], lags: { billing: [0], receipts: [0] } },
    { atSeconds: 5, ends: [120], lags: { billing: [20], receipts: [0] } },
    { atSeconds: 10, ends: [140], lags: { billing: [35], receipts: [10] } },
    { atSeconds: 15, ends: [150], lags: { billing: [40], receipts: [0] } }
  ]
  // billing is at 110: the look after five seconds was the first with an end beyond it.
  assert.strictEqual(paceOfLooks(...looks).lagSecondsWorst, 10)
  assert.strictEqual(paceOfLooks(...looks.slice(0, 1)).lagSecondsWorst, 0)
  // Nothing is remembered of when it came: it is at least as old as the first look.
  assert.strictEqual(paceOfLooks({ atSeconds: 0, ends: [9], lags: { billing: [9] } }).lagSecondsWorst, 0)
})
