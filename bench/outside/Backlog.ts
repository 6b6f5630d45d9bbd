/** A backlog for one contender: found by one fresh process, or drained by several warm ones. */
import { Effect } from "effect"
import { Side } from "../Environment.ts"
import * as Child from "./Child.ts"
import type { Contender } from "./Contenders.ts"
import * as Processes from "./Processes.ts"
import type { Arrived } from "./Reader.ts"

/** What a backlog came to. */
export interface Backlog extends Processes.Faults {
  /** From the process's start to its first records in the topic. */
  readonly firstMillis: number
  /** From then on, until the queue was empty. */
  readonly eventsPerSecond: number
  /** Of all that happened in this time. */
  readonly cpu: Omit<Processes.CpuSeconds, "writer">
  readonly seconds: number
}

/** Reads the topic to its end, and checks what is there. */
const check = Effect.fnUntraced(function* (
  contender: Contender,
  setting: Processes.Setting,
  topic: string,
  events: number
) {
  const all = (yield* setting.topics.size(topic)) + setting.warmUpRecords
  const reads = yield* Processes.reader(setting, topic)
  yield* Processes.patiently(
    Effect.map(reads.call<number>("records"), (read) => read >= all),
    50
  )
  const arrived = yield* reads.call<Arrived>("arrived")
  const faults = yield* Processes.judge(contender, arrived, new Map())
  const count = [...arrived.versions.values()].reduce((sum, version) => sum + version, 0) - setting.warmUpRecords
  if (count - arrived.gaps !== events)
    return yield* Processes.broken(contender, `${count - arrived.gaps} of ${events} events arrived`)
  return faults
})

/** Looks until all of the topic's `events` are there and none is left in the queue. Returns what happened since the first look that saw more than `seen`. */
const drained = Effect.fnUntraced(function* (
  contender: Contender,
  setting: Processes.Setting,
  topic: string,
  relays: ReadonlyArray<number>,
  { events, seen }: { readonly events: number; readonly seen: number }
) {
  const sql = yield* Side
  let first = { size: seen, millis: 0, cpu: yield* Processes.cpuOf(relays) }
  const look = Effect.gen(function* () {
    const size = yield* setting.topics.size(topic)
    if (first.size === seen && size > seen) {
      first = { size, millis: Child.now(), cpu: yield* Processes.cpuOf(relays) }
    }
    if (size < events) return false
    return (yield* sql.unsafe(contender.left)).length === 0
  })
  yield* Effect.timeoutOrElse(Processes.patiently(look, 10), {
    duration: Processes.lostAfterMillis,
    orElse: () => Processes.broken(contender, "the queue is not drained")
  })
  const seconds = (Child.now() - first.millis) / 1_000
  const { writer: _, ...cpu } = Processes.cpuBetween(first.cpu, yield* Processes.cpuOf(relays))
  return { firstAt: first.millis, eventsPerSecond: (events - first.size) / seconds, seconds, cpu }
})

const fillOf = ({ fill, name, named }: Contender) =>
  fill === undefined
    ? () => Effect.die(new Error(`${name} can't find a backlog that was there before it`))
    : (count: number, topic: string) => fill(count, named(topic).topic)

/** A backlog that a fresh process finds. Checks afterwards that every event is in the topic, in its aggregate's order. */
export const backlog = (contender: Contender, setting: Processes.Setting, topic: string, events: number) =>
  Effect.gen(function* () {
    const sql = yield* Side
    yield* Processes.clear(contender)
    yield* setting.topics.acquire(topic)
    yield* fillOf(contender)(events, topic)
    yield* sql`CHECKPOINT`
    const { firstAt, ...result } = yield* Effect.scoped(
      Effect.gen(function* () {
        const began = Child.now()
        const relay = yield* Processes.startRelay(contender, setting, topic)
        const { firstAt, ...rest } = yield* drained(contender, setting, topic, [relay.pid], { events, seen: 0 })
        return { firstAt: firstAt - began, ...rest }
      })
    )
    return {
      firstMillis: firstAt,
      ...result,
      ...(yield* check(contender, setting, topic, events))
    } satisfies Backlog
  }).pipe(Effect.scoped)

/** Events that warm the processes up. */
const warmUpEvents = 20_000

/** A backlog for several processes, which have drained a smaller one before. */
export const together = (
  contender: Contender,
  setting: Processes.Setting,
  topic: string,
  { events, relays: count }: { readonly events: number; readonly relays: number }
) =>
  Effect.gen(function* () {
    const sql = yield* Side
    yield* Processes.clear(contender)
    yield* setting.topics.acquire(topic)
    const result = yield* Effect.scoped(
      Effect.gen(function* () {
        const relays = yield* Effect.forEach(
          Array.from({ length: count }),
          () => Effect.map(Processes.startRelay(contender, setting, topic), ({ pid }) => pid),
          { concurrency: "unbounded" }
        )
        const fill = fillOf(contender)
        yield* fill(warmUpEvents, topic)
        yield* drained(contender, setting, topic, relays, { events: warmUpEvents, seen: 0 })
        yield* sql`CHECKPOINT`
        yield* fill(events, topic)
        return yield* drained(contender, setting, topic, relays, {
          events: warmUpEvents + events,
          seen: warmUpEvents
        })
      })
    )
    const { firstAt: _, ...rest } = result
    return {
      firstMillis: 0,
      ...rest,
      ...(yield* check(contender, setting, topic, warmUpEvents + events))
    } satisfies Backlog
  }).pipe(Effect.scoped)
