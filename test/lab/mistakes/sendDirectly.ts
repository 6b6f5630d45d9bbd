/** For the mistakes that send without an outbox: the aggregate's own write, and the batch as the dispatcher would build it. */
import { Effect } from "effect"
import type { Statement } from "effect/sql"
import type { Batch } from "../../../src/brokers/Broker.ts"
import { toRecord } from "../../../src/brokers/Envelope.ts"
import { laneOf, partitionOf } from "../../../src/outbox/Lane.ts"
import type { NewEvent, NonEmpty, OutboxService, AggregateRef } from "../../../src/outbox/Outbox.ts"
import { Transaction } from "../../../src/platform/Transaction.ts"
import { RandomUuid } from "../../../src/platform/RandomUuid.ts"
import { partitionCount } from "../Parts.ts"

export const batchOf = (
  stream: AggregateRef,
  versionBefore: number,
  events: NonEmpty<NewEvent>
): Effect.Effect<Batch> =>
  Effect.map(RandomUuid, (drawUuid): Batch => {
    const [first, ...rest] = events.map((event, index) =>
      toRecord({
        ...stream,
        eventId: drawUuid(),
        eventType: event.eventType,
        schemaVersion: event.schemaVersion,
        aggregateVersion: versionBefore + 1 + index,
        occurredAt: "2026-01-01T00:00:00.000Z",
        traceId: "0".repeat(32),
        spanId: "0".repeat(16),
        data: JSON.stringify(event.data)
      })
    )
    return {
      topic: stream.topic,
      partition: partitionOf(laneOf(stream.aggregateId), partitionCount),
      records: [first!, ...rest]
    }
  })

/** `Outbox.save` without its events: one statement with all that the aggregate writes. Returns the row of `write`. */
export const writeWithoutEvents = Effect.fnUntraced(function* <Row extends { readonly version: number }>(
  write: Statement.Statement<Row>,
  also: Parameters<OutboxService["save"]>[3]
) {
  const { sql } = yield* Transaction
  const parts = [
    sql`written AS (${write})`,
    ...(also?.(sql`written`) ?? []).map((part, index) => sql`${sql(`also_${index}`)} AS (${part})`)
  ]
  const [row] = yield* Effect.orDie(sql<Row>`WITH ${sql.csv(parts)} SELECT * FROM written`)
  return row!
})
