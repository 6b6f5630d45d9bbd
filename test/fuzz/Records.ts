/**
 * Records on the orders topic that nobody of ours has written: unreadable ones, events of other services, forged versions, old events once
 * more. A consumer parks or skips each of them where an operator sees it, and goes on.
 */
import { Effect } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { foreignEvent } from "../lab/ForeignRecords.ts"
import { consumerNames } from "../../src/main/Names.ts"
import type { Dice } from "./Dice.ts"
import { type HostileRecord, type OrdersTopic, partitions } from "./OrdersTopic.ts"

const json = (value: unknown) => Buffer.from(JSON.stringify(value))

/** A readable event of an aggregate that is no order of ours, with some of its fields changed. */
const altered = (dice: Dice, change: Readonly<Record<string, unknown>>): HostileRecord => {
  const { value } = foreignEvent(0, 1, false)
  const aggregateId = `foreign-${dice.int(1_000)}`
  const event = JSON.parse(Buffer.from(value!).toString()) as Readonly<Record<string, unknown>>
  const eventId = `01890a5d-ac96-774b-bcce-${String(dice.int(10 ** 9)).padStart(12, "0")}`
  return { key: aggregateId, headers: {}, value: json({ ...event, eventId, aggregateId, ...change }) }
}

const kinds: ReadonlyArray<(dice: Dice, order: string) => HostileRecord> = [
  ...[
    () => Buffer.from('{"eventId":'),
    () => Buffer.alloc(0),
    () => Buffer.from([0xff, 0xfe, 0x00]),
    () => json(null),
    () => json([1])
  ].map((value) => (dice: Dice, order: string) => ({ key: dice.pick(["k", order]), headers: {}, value: value() })),
  () => ({ key: null, headers: {}, value: null }),
  (dice) => ({ key: "deep", headers: {}, value: Buffer.from("[".repeat(10 ** (1 + dice.int(5)))) }),
  (dice) => ({
    key: dice.pick(["", " ", "\ufffd", "x".repeat(2_000)]),
    headers: { "event-id": "x".repeat(500) },
    value: json({})
  }),
  (dice) => ({ ...altered(dice, {}), headers: { "event-id": "\ud800", "a\u0000b": "\u0000", traceparent: "00-x" } }),
  (dice) => altered(dice, { eventId: dice.pick(["", "x", "\u0000", 7, null]) }),
  (dice) =>
    altered(dice, {
      aggregateVersion: dice.pick([0, -1, 0.5, 2_147_483_646, 2_147_483_647, 2_147_483_648, 2 ** 53, 1e300, "1"])
    }),
  (dice) => altered(dice, { schemaVersion: dice.pick([0, 99, 2 ** 53, "1", null]) }),
  (dice) => altered(dice, { eventType: dice.pick(["", "Unknown", "\ud800", "__proto__", "constructor", "toString"]) }),
  (dice) => altered(dice, { aggregateType: dice.pick(["", "Ledger", "\ud800"]) }),
  (dice) => altered(dice, { aggregateId: dice.pick(["", "\ud800", "\u0000", "z".repeat(3_000), 7]) }),
  (dice) => altered(dice, { occurredAt: dice.pick(["infinity", "", "0000-00-00", 7, "+275760-09-13T00:00:00.000Z"]) }),
  (dice) => altered(dice, { traceId: dice.pick(["", "0", "z".repeat(32), null]) }),
  (dice) =>
    altered(dice, {
      data: dice.pick<unknown>([
        null,
        [],
        {},
        { lines: 7 },
        { customerId: "\u0000", lines: [], total: { amountMinor: 1e300, currency: "XXX" } }
      ])
    }),
  // A version of an order that is far ahead: the order's own events must go on.
  (dice, order) => ({
    ...altered(dice, { aggregateId: order, aggregateVersion: 1_000 + dice.int(1_000) }),
    key: order
  }),
  // In another aggregate's name.
  (dice, order) => ({ ...altered(dice, {}), key: order })
]

export interface Records {
  /** Writes `count` records, each to a partition that is drawn. */
  readonly write: (count: number) => Effect.Effect<void, SqlError.SqlError>
  readonly count: () => number
  /** Records that a consumer neither took as an event nor shows to the operator, as sentences; partitions that do not go on, likewise. */
  readonly problems: Effect.Effect<ReadonlyArray<string>, SqlError.SqlError>
}

export const make = (dice: Dice, topic: OrdersTopic): Effect.Effect<Records, never, SqlClient.SqlClient> =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const written: Array<{ readonly partition: number; readonly offset: bigint; readonly value: Buffer }> = []

    const write = Effect.fnUntraced(function* (count: number) {
      const [order] = yield* sql<{ readonly id: string }>`
        SELECT id::text AS id FROM orders ORDER BY id DESC OFFSET ${dice.int(10)}::int8 LIMIT 1`
      for (let number = 0; number < count; number++) {
        const partition = dice.int(partitions)
        // One of five is a record that is there already, once more.
        const old = dice.chance(0.2) ? yield* topic.existing(partition, dice.int(1_000)) : undefined
        const record = old ?? dice.pick(kinds)(dice, order?.id ?? "k")
        written.push({
          partition,
          offset: yield* topic.append(partition, record),
          value: record.value ?? Buffer.alloc(0)
        })
      }
    })

    const problems = Effect.gen(function* () {
      const unseen = yield* sql<{ readonly sentence: string }>`
        SELECT name || ' shows nothing of the record at ' || partition || ':' || record_offset || ': '
               || encode(substr(record_value, 1, 300), 'escape') AS sentence
        FROM unnest(${written.map(({ partition }) => partition)}::int4[], ${written.map(({ offset }) => offset)}::int8[],
                    ${written.map(({ value }) => value)}::bytea[]) AS record(partition, record_offset, record_value)
        CROSS JOIN unnest(${consumerNames}::text[]) AS name
        -- An event that comes again is known by its id, wherever it is kept.
        WHERE NOT EXISTS (SELECT FROM inbox_parked WHERE consumer_name = name
                          AND ((broker_partition, broker_offset) = (partition, record_offset)
                               OR position(convert_to(event_id, 'UTF8') IN record_value) > 0))
          AND NOT EXISTS (SELECT FROM inbox_dead_letters WHERE consumer_name = name
                          AND ((broker_partition, broker_offset) = (partition, record_offset)
                               OR position(convert_to(event_id, 'UTF8') IN record_value) > 0))
          AND NOT EXISTS (SELECT FROM processed_events
                          WHERE consumer_name = name AND position(convert_to(event_id::text, 'UTF8') IN record_value) > 0)
        LIMIT 10`
      return [...(yield* topic.stalled), ...unseen.map(({ sentence }) => sentence)]
    })

    return { write, count: () => written.length, problems }
  })
