/**
 * The reader: a plain kafkajs consumer that notes the arrival of each event, and checks what arrives. It shares no code with the service.
 */
import { Kafka, logLevel } from "kafkajs"
import { randomUUID } from "node:crypto"
import * as Arrivals from "./Arrivals.ts"
import { answer, now } from "./Child.ts"

/** What has arrived of a topic. */
export interface Arrived {
  /** Events by their place in the load; not a number where none has arrived. */
  readonly times: Float64Array
  /** When this was asked. */
  readonly now: number
  /** The highest version of each aggregate. */
  readonly versions: ReadonlyMap<string, number>
  /** Versions below it that have not arrived. */
  readonly gaps: number
  /** Records, duplicates included. */
  readonly records: number
  /** Events that arrived again. */
  readonly duplicates: number
  /** Events that arrived after a later one of their aggregate. */
  readonly overtaken: number
}

interface Value {
  readonly aggregateId: string
  readonly aggregateVersion: number
  readonly data: { readonly phase?: number; readonly index?: number }
}

const kafka = new Kafka({
  clientId: "outside-reader",
  brokers: (process.env["KAFKA_BROKERS"] ?? "").split(","),
  logLevel: logLevel.ERROR
})
const consumer = kafka.consumer({ groupId: `outside-${randomUUID()}`, maxWaitTimeInMs: 500 })

let arrivals = Arrivals.make()
let times = new Float64Array(0)
let phase = 0
let missing = 0
let records = 0

const read = (text: string, time: number) => {
  const { aggregateId, aggregateVersion, data } = JSON.parse(text) as Value
  records++
  if (!arrivals.note(aggregateId, aggregateVersion)) return
  if (data.phase === phase && data.index !== undefined) {
    times[data.index] = time
    missing--
  }
}

answer({
  /** Reads the topics from their start on. */
  subscribe: async (topics: Array<string>) => {
    await consumer.connect()
    await consumer.subscribe({ topics, fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch }) => {
        const time = now()
        for (const { value } of batch.messages) read(String(value), time)
      }
    })
  },
  /** Forgets what has arrived so far. */
  forget: async () => {
    arrivals = Arrivals.make()
    records = 0
  },
  /** Notes the times of one load's events. */
  expect: async (load: { readonly phase: number; readonly count: number }) => {
    phase = load.phase
    missing = load.count
    times = new Float64Array(load.count).fill(Number.NaN)
  },
  /** How many of the load's events have not arrived yet. */
  missing: async () => missing,
  records: async () => records,
  arrived: async (): Promise<Arrived> => ({
    times,
    now: now(),
    records,
    versions: arrivals.versions,
    gaps: arrivals.gaps(),
    duplicates: arrivals.duplicates(),
    overtaken: arrivals.overtaken()
  })
})
