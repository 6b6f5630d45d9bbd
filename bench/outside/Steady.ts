/** A steady load for one contender, in fresh processes with a topic of its own. */
import { Effect, type Scope } from "effect"
import { Environment, Side } from "../Environment.ts"
import { quantile } from "../Figures.ts"
import type { Contender } from "./Contenders.ts"
import { type Load, type Shape, usual, type Written } from "./OpenLoop.ts"
import * as Processes from "./Processes.ts"
import type { Arrived } from "./Reader.ts"

const quantiles = [0.5, 0.95, 0.99, 0.999, 1] as const

/** Latencies in milliseconds. */
export interface Quantiles {
  readonly p50: number
  readonly p95: number
  readonly p99: number
  readonly p999: number
  readonly max: number
}

export const quantilesOf = (millis: ReadonlyArray<number>): Quantiles => {
  const [p50 = NaN, p95 = NaN, p99 = NaN, p999 = NaN, max = NaN] = quantiles.map((q) => quantile(millis, q))
  return { p50, p95, p99, p999, max }
}

/** What a load came to. Latencies in milliseconds. */
export interface Phase {
  readonly events: number
  /** Events that had not arrived when the run stopped waiting. They count as if they had arrived then. */
  readonly late: number
  /** Events a second that the writer committed. Far below the rate, the machine was too slow for the load, and the run says little. */
  readonly committedPerSecond: number
  /** From the commit's answer to the arrival at the reader. */
  readonly fromCommit: Quantiles
  /** From the time at which the event was due: with the writer's own delays. */
  readonly fromDue: Quantiles
  /** From the commit, for each second of the load. */
  readonly eachSecond: ReadonlyArray<{ readonly mean: number; readonly p99: number }>
  /** From the load's start to the last arrival. */
  readonly cpu: Processes.CpuSeconds
}

/** The steady loads of a run: right after the start, and again after some more of it. */
export interface Steady extends Processes.Faults {
  readonly readyMillis: number
  readonly cold: Phase
  readonly warm: Phase
}

/** The size of a run. */
export interface Size {
  readonly rate: number
  readonly seconds: number
  readonly warmUpSeconds: number
  readonly shape?: Shape
  /** Processes of the relay. */
  readonly relays?: number
  /** Runs between the start of the relay and the first load, in the run's scope. */
  readonly before?: (topic: string) => Effect.Effect<void, unknown, Side | Environment | Scope.Scope>
}

/** How long a peer may take for what is left at a load's end. One that needs more is behind for good. */
const behindAfterMillis = 10_000

/** A steady load for a fresh process, and then the same load again. Checks that every event arrived, in its aggregate's order. */
export const steady = (
  contender: Contender,
  setting: Processes.Setting,
  topic: string,
  { before, rate, relays: count = 1, seconds, shape = usual, warmUpSeconds }: Size
) =>
  Effect.gen(function* () {
    yield* Processes.clear(contender)
    yield* setting.topics.acquire(topic)
    const [reads, writes] = yield* Effect.all(
      [Processes.warmReader(setting, topic), Processes.warmWriter(contender, setting, topic, shape)],
      { concurrency: 2 }
    )
    const relay = yield* Processes.startRelay(contender, setting, topic)
    const others = yield* Effect.forEach(Array.from({ length: count - 1 }), () =>
      Processes.startRelay(contender, setting, topic)
    )
    const pids = [relay, ...others].map(({ pid }) => pid)
    if (before !== undefined) yield* before(topic)

    const load = Effect.fnUntraced(function* (phase: number, forSeconds: number) {
      const count = rate * forSeconds
      yield* reads.call("expect", { phase, count })
      const cpuBefore = yield* Processes.cpuOf(pids, writes.pid)
      const { committed, due } = yield* writes.call<Written>("run", {
        topic: contender.named(topic).topic,
        phase,
        rate,
        seconds: forSeconds
      } satisfies Load)
      yield* Processes.patiently(
        Effect.map(reads.call<number>("missing"), (missing) => missing === 0),
        20
      ).pipe(
        Effect.timeoutOrElse({
          duration: contender.isStrict ? Processes.lostAfterMillis : behindAfterMillis,
          orElse: () =>
            contender.isStrict
              ? Processes.broken(contender, `an event did not arrive; its relay said: ${relay.output().slice(-1_000)}`)
              : Effect.logWarning(`${contender.name} is behind at ${rate}/s: ${relay.output().slice(0, 500)}`)
        })
      )
      const cpu = Processes.cpuBetween(cpuBefore, yield* Processes.cpuOf(pids, writes.pid))
      const arrived = yield* reads.call<Arrived>("arrived")
      const times = [...arrived.times].map((time) => (Number.isNaN(time) ? arrived.now : time))
      const fromCommit = times.map((time, index) => time - committed[index]!)
      return {
        arrived,
        figures: {
          events: count,
          late: arrived.times.filter(Number.isNaN).length,
          committedPerSecond: (count * 1_000) / (Math.max(...committed) - due[0]!),
          fromCommit: quantilesOf(fromCommit),
          fromDue: quantilesOf(times.map((time, index) => time - due[index]!)),
          eachSecond: Array.from({ length: forSeconds }, (_, second) => {
            const part = fromCommit.slice(second * rate, (second + 1) * rate)
            return { mean: part.reduce((sum, millis) => sum + millis, 0) / part.length, p99: quantile(part, 0.99) }
          }),
          cpu
        } satisfies Phase
      }
    })

    const cold = yield* load(1, seconds)
    const isBehind = cold.figures.late > 0
    if (warmUpSeconds > 0 && !isBehind) yield* load(2, warmUpSeconds)
    const warm = isBehind ? cold : yield* load(3, seconds)
    const written = yield* writes.call<ReadonlyMap<string, number>>("versions")
    const faults = yield* Processes.judge(contender, warm.arrived, written)
    return { readyMillis: relay.readyMillis, ...faults, cold: cold.figures, warm: warm.figures } satisfies Steady
  }).pipe(Effect.scoped)
