/** The embedded broker with a topic that refuses the batches that a test names, and records every send. */
import { Effect, Layer, Random } from "effect"
import { SqlClient } from "effect/sql"
import { Broker, BrokerUnavailable, MessageRejected } from "../../src/brokers/Broker.ts"
import { HoldSettings } from "../../src/outbox/holds/Parking.ts"
import { Outbox } from "../../src/outbox/Outbox.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "./Counters.ts"

/** An event as `aggregate/version`, for example `poison/3`. */
export type Name = `${string}/${number}`

export interface Topic {
  /** A batch with one of these events is refused as a whole. */
  readonly refused: Set<Name>
  /** Batches with more records are refused. */
  maxRecords: number
  down: boolean
  /** How long an append may take to arrive. */
  lateMillis: number
  /** Every batch that was sent, in the order of the sends. */
  readonly sends: Array<ReadonlyArray<Name>>
}

export const makeTopic = (): Topic => ({
  refused: new Set(),
  maxRecords: Number.POSITIVE_INFINITY,
  down: false,
  lateMillis: 0,
  sends: []
})

const decoder = new TextDecoder()

/** The name of the event in a record. */
export const nameOf = (value: Uint8Array): Name => {
  const { aggregateId, aggregateVersion } = JSON.parse(decoder.decode(value)) as {
    readonly aggregateId: string
    readonly aggregateVersion: number
  }
  return `${aggregateId}/${aggregateVersion}`
}

/** The broker, with the topic's refusals. */
export const over =
  (topic: Topic) =>
  <R>(layer: Layer.Layer<Broker, never, R>): Layer.Layer<Broker, never, R> =>
    Layer.effect(
      Broker,
      Effect.map(Broker, (broker) =>
        Broker.of({
          ...broker,
          publish: Effect.fnUntraced(function* (batch) {
            const names = batch.records.map((record) => nameOf(record.value))
            topic.sends.push(names)
            if (topic.down) return yield* new BrokerUnavailable({ operation: "publish", cause: "down" })
            if (names.length > topic.maxRecords || names.some((name) => topic.refused.has(name))) {
              return yield* new MessageRejected({ topic: batch.topic, partition: batch.partition, reason: "too large" })
            }
            if (topic.lateMillis > 0) yield* Effect.sleep((yield* Random.next) * topic.lateMillis)
            return yield* broker.publish(batch)
          })
        })
      )
    ).pipe(Layer.provide(layer))

/** How often the event was sent alone. */
export const sendsAlone = (topic: Topic, name: Name) =>
  topic.sends.filter((send) => send.length === 1 && send[0] === name).length

/** Appends `count` events after `version` in a transaction of its own. */
export const append = (id: string, version: number, count: number, at = Counters.topic) =>
  Effect.gen(function* () {
    const outbox = yield* Outbox
    const event = { eventType: "Counted", schemaVersion: 1, data: { by: 1 } }
    const [first, ...rest] = Array.from({ length: count }, () => event)
    yield* Transaction.run(
      outbox.append({ topic: at, aggregateType: "Counter", aggregateId: id }, version, [first!, ...rest])
    )
  })

/** The states of the aggregate's events, in version order. */
export const statesOf = (id: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    return yield* sql<{ readonly version: number; readonly status: string; readonly eventId: string }>`
      SELECT aggregate_version AS version, status, event_id::text AS "eventId"
      FROM outbox_status WHERE aggregate_id = ${id} ORDER BY aggregate_version`
  })

/** The id of the aggregate's only event in that state. */
export const idOf = (id: string, status: string) =>
  Effect.map(statesOf(id), (states) => states.find((state) => state.status === status)!.eventId)

/** Waits until the aggregate has an event in that state. */
export const until = (id: string, status: string) =>
  Counters.eventually(
    `an event of ${id} to be ${status}`,
    Effect.map(statesOf(id), (states) => states.some((state) => state.status === status))
  )

/** Waits until all of the aggregate's events are published. */
export const untilPublished = (id: string, count: number) =>
  Counters.eventually(
    `${count} events of ${id} to be published`,
    Effect.map(
      statesOf(id),
      (states) => states.length === count && states.every((state) => state.status === "published")
    )
  )

/** Waits of a few milliseconds, so that ten attempts end quickly. */
export const soon = (settings: Partial<(typeof HoldSettings)["Service"]> = {}) =>
  Layer.succeed(HoldSettings, { retryBaseMillis: 0.02, maxAttempts: 10, skipTopics: [], ...settings })

/** The broker's refusal, for tests that call the dispatcher's steps. */
export const rejection = new MessageRejected({ topic: Counters.topic, partition: 0, reason: "too large" })

/** The hold on the aggregate. */
export const holdOn = (id: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [row] = yield* sql<{ readonly attempts: number; readonly waitMillis: number | null }>`
      SELECT attempts, (extract(epoch FROM next_attempt_at - clock_now()) * 1000)::float8 AS "waitMillis"
      FROM outbox_holds WHERE aggregate_id = ${id}`
    return row
  })

/** Makes every refused event that is retried due now. A dispatcher notices at its next poll. */
export const dueNow = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`UPDATE outbox_holds SET next_attempt_at = clock_now() WHERE next_attempt_at IS NOT NULL`
})
