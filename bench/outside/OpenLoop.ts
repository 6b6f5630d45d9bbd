/**
 * The load of all writers: events on the schedule of a clock, over a few connections.
 *
 * The loop is open. An event is due at its time, however long the ones before it take, and both its times are noted: when it was due, and when its
 * commit had returned. A delay of the writer itself therefore shows in the first, instead of vanishing (coordinated omission).
 *
 * An aggregate keeps to one connection, so that its versions commit in order.
 */
import { randomBytes } from "node:crypto"
import { setTimeout as sleep } from "node:timers/promises"
import { answer, now } from "./Child.ts"

/** An event to be written. */
export interface LoadEvent {
  readonly topic: string
  readonly aggregateType: string
  readonly aggregateId: string
  /** Contiguous from 1 for each aggregate. */
  readonly version: number
  readonly data: unknown
}

/** Writes events in transactions of their own on one connection; rolls back what is not kept. */
export type Write = (event: LoadEvent, isKept: boolean) => Promise<void>

/** What is to be written. */
export interface Load {
  readonly topic: string
  /** Tells the events of this load from those of others. */
  readonly phase: number
  /** Events a second. */
  readonly rate: number
  readonly seconds: number
}

/** When each event was due, and when its commit had returned, in milliseconds of {@link now}. */
export interface Written {
  readonly due: Float64Array
  readonly committed: Float64Array
}

/** The kind of a load's events, and how many write them. */
export interface Shape {
  /** A multiple of the connections, or fewer than them. */
  readonly aggregates: number
  /** Of an event's data as JSON, about. */
  readonly dataBytes: number
  readonly connections: number
}

export const usual: Shape = { aggregates: 1_000, dataBytes: 400, connections: 4 }

/** How a writer's process hears of the shape. */
export const variablesOf = (shape: Shape): Readonly<Record<string, string>> => ({ LOAD_SHAPE: JSON.stringify(shape) })

/** The shape of this process's load. */
export const shapeHere = (): Shape => ({
  ...usual,
  ...(JSON.parse(process.env["LOAD_SHAPE"] ?? "{}") as Partial<Shape>)
})

/** The bytes of the rest of {@link dataOf}. */
const restBytes = 140

/** Text that nobody can compress: Postgres compresses a long row, and a text of one letter would vanish. */
const noise = randomBytes(64 * 1_024).toString("base64")

/** An application's data, padded. */
const dataOf = (bytes: number) => {
  const length = Math.max(0, bytes - restBytes)
  return (phase: number, index: number, due: number) => {
    const start = (index * 97) % (noise.length - length)
    return {
      phase,
      index,
      due,
      customerId: "ada",
      lines: [{ sku: "book", quantity: 2, unitAmountMinor: 1_250 }],
      note: noise.slice(start, start + length)
    }
  }
}

/** The events of a load: event `index` belongs to the aggregate `index % aggregates`. Needs no more connections than aggregates. */
export const make = (opened: ReadonlyArray<Write>, shape: Shape = usual) => {
  const { aggregates: aggregateCount } = shape
  const connections = opened.slice(0, aggregateCount)
  const data = dataOf(shape.dataBytes)
  const ids = Array.from({ length: aggregateCount }, () => crypto.randomUUID())
  const versions = new Int32Array(aggregateCount)
  const eventOf = (topic: string, aggregate: number, version: number, data: unknown): LoadEvent => ({
    topic,
    aggregateType: "Bench",
    aggregateId: ids[aggregate]!,
    version,
    data
  })

  const each = (work: (write: Write, connection: number) => Promise<void>) =>
    Promise.all(connections.map((write, connection) => work(write, connection)))

  return {
    /** Warms the writer up with transactions that are rolled back: nobody sees their events. */
    warmUp: async ({ topic, transactions }: { readonly topic: string; readonly transactions: number }) => {
      await each(async (write, connection) => {
        for (let index = 0; index < transactions; index++) {
          await write(eventOf(topic, connection, 1, data(0, index, now())), false)
        }
      })
    },
    /** Writes a load. */
    run: async ({ phase, rate, seconds, topic }: Load): Promise<Written> => {
      const count = rate * seconds
      const due = new Float64Array(count)
      const committed = new Float64Array(count)
      // All connections have heard of the load before its first event is due.
      const began = now() + 50
      await each(async (write, connection) => {
        for (let index = connection; index < count; index += connections.length) {
          const aggregate = index % aggregateCount
          due[index] = began + (index * 1_000) / rate
          // A timer may fire a fraction of a millisecond early, and a commit can take less than that.
          for (let early = due[index]! - now(); early > 0; early = due[index]! - now()) await sleep(early)
          const version = (versions[aggregate] = versions[aggregate]! + 1)
          await write(eventOf(topic, aggregate, version, data(phase, index, due[index]!)), true)
          committed[index] = now()
        }
      })
      return { due, committed }
    },
    /** The last version of each aggregate. */
    versions: async (): Promise<ReadonlyMap<string, number>> =>
      new Map(ids.map((id, aggregate) => [id, versions[aggregate]!]))
  }
}

/** Answers the harness as a writer, on connections that `connect` opens. */
export const answerWriter = (connect: () => Promise<Write>): void => {
  const shape = shapeHere()
  const opened = Promise.all(Array.from({ length: shape.connections }, connect)).then((writes) => make(writes, shape))
  answer({
    warmUp: async (load: { readonly topic: string; readonly transactions: number }) => (await opened).warmUp(load),
    run: async (load: Load) => (await opened).run(load),
    versions: async () => (await opened).versions()
  })
}
