/** The orders topic as the oracle and the story read it: decoded, in the order in which it was appended. */
import { ordersTopic } from "../../src/domain/Events.ts"
import type { Batch } from "../../src/messaging/broker/Broker.ts"
import type { ModelLog } from "./ModelBroker.ts"
import type { TopicRecord } from "./Oracle.ts"
import type { Story } from "./Story.ts"

const decoder = new TextDecoder()

/** What an event says of money. */
const signs: Readonly<Record<string, number>> = { OrderPaid: 1, OrderRefunded: -1 }

export class Topic {
  readonly records: Array<TopicRecord> = []
  private readonly log: ModelLog
  private readonly story: Story

  constructor(log: ModelLog, story: Story) {
    this.log = log
    this.story = story
  }

  /** Takes in what was appended since the last look; false where nothing was. */
  read(): boolean {
    const before = this.records.length
    this.log.partitions(ordersTopic).forEach((records, partition) => {
      const known = this.records.filter((record) => record.partition === partition).length
      for (const { headers, key, offset, value } of records.slice(known)) {
        const event = this.eventOf(value)
        this.records.push({
          partition,
          offset: Number(offset),
          order: event.aggregateId,
          version: event.aggregateVersion,
          event: event.eventId,
          type: event.eventType,
          paid: (event.data.amount?.amountMinor ?? 0) * (signs[event.eventType] ?? 0),
          payment: event.data.paymentId,
          data: event.data,
          isLabelled:
            key === event.aggregateId &&
            headers["event-id"] === event.eventId &&
            headers["outbox_id"] === event.eventId &&
            headers["event-type"] === event.eventType
        })
      }
    })
    return this.records.length > before
  }

  private eventOf(value: Uint8Array | null) {
    const event = JSON.parse(decoder.decode(value ?? new Uint8Array())) as {
      readonly aggregateId: string
      readonly aggregateVersion: number
      readonly eventId: string
      readonly eventType: string
      readonly data: {
        readonly customerId?: string
        readonly paymentId?: string
        readonly amount?: { readonly amountMinor: number }
      }
    }
    if (event.data.customerId !== undefined) this.story.letters.set(event.aggregateId, event.data.customerId)
    return event
  }

  /** Events as a story names them. */
  names(values: ReadonlyArray<Uint8Array | null>): string {
    return values
      .map((value) => {
        const event = this.eventOf(value)
        return this.story.named({ order: event.aggregateId, version: event.aggregateVersion })
      })
      .join(" ")
  }

  /** A send, as a story names it. */
  titleOf(batch: Batch): string {
    return `${this.names(batch.records.map((record) => record.value))} to partition ${batch.partition}`
  }
}
