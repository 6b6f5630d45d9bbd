/**
 * `bench roll-forward`: the command on a database that has lost all orders of its topic, and once more, when it has them. The first is the pace of
 * writing, the second that of reading: after a real restore most of the topic is known.
 */
import { Effect, Redacted } from "effect"
import * as Envelope from "../src/brokers/Envelope.ts"
import { ordersTopic } from "../src/domain/Events.ts"
import { laneOf, partitionOf } from "../src/outbox/Lane.ts"
import { Publisher } from "../src/outbox/Publisher.ts"
import { Ids } from "../src/platform/Ids.ts"
import { Environment } from "./Environment.ts"
import * as PaidOnceCommand from "./PaidOnceCommand.ts"
import * as RawClient from "./RawClient.ts"
import * as Service from "./Service.ts"

/** Orders in one send while the topic is filled. */
const fillBatch = 1_000

const total = { amountMinor: 2_500, currency: "EUR" }

/** A paid order's two events, as the outbox sends them. */
const eventsOf = (order: string, next: () => string) => {
  const envelope = {
    topic: ordersTopic,
    schemaVersion: 1,
    aggregateType: "Order",
    aggregateId: order,
    occurredAt: new Date().toISOString(),
    traceId: "0af7651916cd43dd8448eb211c80319c",
    spanId: "b7ad6b7169203331"
  }
  const lines = [{ sku: "book", quantity: 2, unitAmountMinor: 1_250 }]
  return [
    { type: "OrderPlaced", data: { customerId: "ada", lines, total } },
    { type: "OrderPaid", data: { customerId: "ada", paymentId: next(), amount: total } }
  ].map(({ data, type }, index) => ({
    ...envelope,
    eventId: next(),
    eventType: type,
    aggregateVersion: index + 1,
    data: JSON.stringify(data)
  }))
}

const fill = Effect.fnUntraced(function* (orders: number) {
  const { brokers } = yield* Environment
  const producer = yield* RawClient.connect(brokers)
  const { next } = yield* Ids
  for (let at = 0; at < orders; at += fillBatch) {
    const messages = Array.from({ length: Math.min(fillBatch, orders - at) }, next).flatMap((order) =>
      eventsOf(order, next).map((event) => {
        const { headers, key, value } = Envelope.toRecord(event)
        return {
          key,
          value: Buffer.from(value),
          headers,
          partition: partitionOf(laneOf(order), Service.partitions)
        }
      })
    )
    yield* Effect.promise(() => producer.send({ topic: ordersTopic, acks: -1, messages }).then(() => undefined))
  }
}, Effect.scoped)

interface RolledForward {
  readonly read: number
  readonly applied: number
}

export const rollForward = Effect.fnUntraced(function* ({ orders }: { readonly orders: number }) {
  const { brokers, databaseUrl } = yield* Environment
  yield* Effect.provide(
    Effect.gen(function* () {
      yield* (yield* Publisher).prepare(ordersTopic)
      yield* fill(orders)
    }),
    Service.dispatcher({ archive: true })
  )
  const run = Effect.map(
    PaidOnceCommand.run(["roll-forward", "--reason", "measured"], {
      DATABASE_URL: Redacted.value(databaseUrl),
      KAFKA_BROKERS: brokers
    }),
    ({ out, ...taken }) => ({ ...taken, ...(out as RolledForward) })
  )
  return { orders, lost: yield* run, known: yield* run }
})

const line = (what: string, { applied, megabytesAtMost, read, seconds }: RolledForward & Taken) =>
  `${what}: ${read} events in ${seconds.toFixed(1)} s (${Math.round(read / seconds)}/s), ${applied} written, at most ${megabytesAtMost} MB resident`
type Taken = Omit<Effect.Success<ReturnType<typeof PaidOnceCommand.run>>, "out">

export const print = ({ known, lost, orders }: Effect.Success<ReturnType<typeof rollForward>>): string =>
  [`${orders} paid orders in the topic`, line("all lost", lost), line("all known", known)].join("\n")
