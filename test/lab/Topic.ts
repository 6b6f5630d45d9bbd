/** The orders topic as the oracle and the story read it: decoded, in the order of its appends. */
import { ordersTopic } from "../../src/domain/Events.ts"
import type { Batch, ConsumedRecord } from "../../src/brokers/Broker.ts"
import type { ModelLog } from "./ModelBroker.ts"
import type { TopicRecord } from "./Oracle.ts"
import type { InboxRecord } from "./OracleInbox.ts"
import { partitionCount } from "./Parts.ts"
import type { Story } from "./Story.ts"

const decoder = new TextDecoder()

/** The sign of an event's amount. */
const signs: Readonly<Record<string, number>> = { OrderPaid: 1, OrderRefunded: -1 }

/** A record as another service appends it. */
type Foreign = Omit<ConsumedRecord, "offset">

export class Topic {
  /** The records that the service has sent. */
  readonly records: Array<TopicRecord> = []
  /** All records, as consumers know them. */
  readonly all: Array<InboxRecord> = []
  private readonly known = Array.from({ length: partitionCount }, () => 0)
  private readonly foreign = new Set<string>()
  private readonly unreadable = new Map<string, string>()
  private readonly log: ModelLog
  private readonly story: Story

  constructor(log: ModelLog, story: Story) {
    this.log = log
    this.story = story
  }

  /** Another service appends to the topic. `canBeHandled` is false for a record that no consumer here can apply. Returns the record's name. */
  append(partition: number, record: Foreign, canBeHandled: boolean): string {
    const { offset } = this.log.appendForeign(ordersTopic, partition, record)
    const place = `${ordersTopic}:${partition}:${offset}`
    this.foreign.add(place)
    const event = eventOf(record.value)
    if (!canBeHandled) {
      const id = event?.eventId ?? place
      if (!this.unreadable.has(id)) this.unreadable.set(id, `bad${this.unreadable.size + 1}`)
    }
    this.read()
    return this.names([record], [place])
  }

  /** Reads the records since the last call; false if there are none. */
  read(): boolean {
    let isNew = false
    this.log.partitions(ordersTopic).forEach((records, partition) => {
      for (const { headers, key, offset, value } of records.slice(this.known[partition])) {
        isNew = true
        const place = `${ordersTopic}:${partition}:${offset}`
        const event = eventOf(value)
        const id = event?.eventId ?? place
        this.all.push({
          partition,
          offset: Number(offset),
          event: id,
          // A record that can't be read belongs to the aggregate of its key.
          order: event?.aggregateId ?? key ?? place,
          version: event?.aggregateVersion,
          isBad: this.unreadable.has(id)
        })
        if (event?.data.customerId !== undefined) this.story.letters.set(event.aggregateId, event.data.customerId)
        if (event === undefined || this.foreign.has(place)) continue
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
      this.known[partition] = records.length
    })
    return isNew
  }

  /** The names of unreadable records in a story, which are numbers. */
  names(records: ReadonlyArray<Pick<ConsumedRecord, "value">>, places: ReadonlyArray<string> = []): string {
    return records
      .map(({ value }, index) => {
        const event = eventOf(value)
        if (event?.data.customerId !== undefined) this.story.letters.set(event.aggregateId, event.data.customerId)
        return event === undefined
          ? this.nameOf(places[index] ?? "")
          : this.story.named({ order: event.aggregateId, version: event.aggregateVersion })
      })
      .join(" ")
  }

  /** The index of the first of these records that is in the topic. */
  sent(...records: ReadonlyArray<Foreign>): number | undefined {
    const at = records.findIndex(({ value }) => {
      const id = eventOf(value)?.eventId
      return this.all.some(({ event }) => event === id)
    })
    return at < 0 ? undefined : at
  }

  /** The name of an event or a record in a story, by its id. */
  nameOf(id: string): string {
    const known = this.all.find(({ event }) => event === id)
    return known?.version === undefined
      ? (this.unreadable.get(id) ?? "?")
      : this.story.named({ order: known.order, version: known.version })
  }

  /** The name of a send in a story. */
  titleOf(batch: Batch): string {
    return `${this.names(batch.records)} to partition ${batch.partition}`
  }
}

interface Event {
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

/** The event in a record, undefined if there is none. */
const eventOf = (value: Uint8Array | null): Event | undefined => {
  try {
    return JSON.parse(decoder.decode(value ?? new Uint8Array())) as Event
  } catch {
    return undefined
  }
}
