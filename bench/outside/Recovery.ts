/** What a steady load feels of a relay that is killed or frozen, and of a Kafka that stands still: how long it waits, and what comes twice. */
import { Effect } from "effect"
import * as Cpu from "../Cpu.ts"
import * as Child from "./Child.ts"
import type { Contender } from "./Contenders.ts"
import { type Load, usual, type Written } from "./OpenLoop.ts"
import * as Processes from "./Processes.ts"
import type { Arrived } from "./Reader.ts"

/** What happens to the first of two relays, or to Kafka. */
export const disturbances = ["kill", "freeze", "outage"] as const
export type Disturbance = (typeof disturbances)[number]

/** What came of it, in milliseconds from the disturbance on. */
export interface Recovery extends Processes.Faults {
  /** The longest that an event waited. */
  readonly longestMillis: number
  /** Until the first event arrived that was committed after the disturbance, and had waited. */
  readonly backMillis: number
  /** Until the last of them had arrived. */
  readonly goneMillis: number
  /** How many had waited. */
  readonly held: number
}

/** An event that waits longer than this was held up: far above a healthy p99.9, and far below any recovery. */
const heldAfterMillis = 100

/** The figures of a load that was disturbed at `at`: all times on one clock. */
export const recoveryOf = (
  committed: ReadonlyArray<number>,
  arrived: ReadonlyArray<number>,
  at: number
): Omit<Recovery, keyof Processes.Faults> => {
  const held = committed.flatMap((time, index) => {
    const arrival = arrived[index]!
    return arrival > at && arrival - time > heldAfterMillis ? [{ time, arrival }] : []
  })
  const since = held.filter(({ time }) => time >= at).map(({ arrival }) => arrival - at)
  return {
    held: held.length,
    longestMillis: Math.max(0, ...held.map(({ arrival, time }) => arrival - time)),
    backMillis: since.length === 0 ? 0 : Math.min(...since),
    goneMillis: Math.max(0, ...held.map(({ arrival }) => arrival - at))
  }
}

/** The size of a run. The load goes on for `seconds` after the disturbance has ended. */
export interface Size {
  readonly rate: number
  readonly freezeSeconds: number
  readonly seconds: number
}

/** Before the disturbance, so that both relays are warm and have divided the work. */
const calmSeconds = 4

const signal = (pid: number, name: NodeJS.Signals) => Effect.sync(() => process.kill(pid, name))

const frozen = (pid: number, seconds: number): Effect.Effect<void> =>
  Effect.scoped(
    Effect.andThen(
      // Whatever ends the run, the process goes on.
      Effect.acquireRelease(signal(pid, "SIGSTOP"), () => signal(pid, "SIGCONT")),
      Effect.sleep(seconds * 1_000)
    )
  )

/** Runs one disturbance. With a Kafka that this process has not started, an outage is a defect. */
export const recovery = (
  contender: Contender,
  setting: Processes.Setting,
  topic: string,
  kind: Disturbance,
  { freezeSeconds, rate, seconds }: Size
) =>
  Effect.gen(function* () {
    yield* Processes.clear(contender)
    yield* setting.topics.acquire(topic)
    const [reads, writes] = yield* Effect.all(
      [Processes.warmReader(setting, topic), Processes.warmWriter(contender, setting, topic, usual)],
      { concurrency: 2 }
    )
    // The first one leads, where there is a leader.
    const first = yield* Processes.startRelay(contender, setting, topic)
    yield* Processes.startRelay(contender, setting, topic)
    const disturb = Effect.gen(function* () {
      yield* Effect.sleep(calmSeconds * 1_000)
      const at = Child.now()
      if (kind === "kill") yield* first.signal("SIGKILL")
      else {
        const pid = kind === "freeze" ? first.pid : Cpu.kafkaPid()
        if (pid === undefined) return yield* Effect.die(new Error("an outage needs a Kafka that the benchmark starts"))
        yield* frozen(pid, freezeSeconds)
      }
      return at
    })
    const forSeconds = calmSeconds + (kind === "kill" ? 0 : freezeSeconds) + seconds
    yield* reads.call("expect", { phase: 1, count: rate * forSeconds })
    const [{ committed }, at] = yield* Effect.all(
      [
        writes.call<Written>("run", {
          topic: contender.named(topic).topic,
          phase: 1,
          rate,
          seconds: forSeconds
        } satisfies Load),
        disturb
      ],
      { concurrency: 2 }
    )
    yield* Processes.patiently(
      Effect.map(reads.call<number>("missing"), (missing) => missing === 0),
      20
    ).pipe(
      Effect.timeoutOrElse({
        duration: Processes.lostAfterMillis,
        orElse: () => Processes.broken(contender, `an event did not arrive after ${kind}`)
      })
    )
    const arrived = yield* reads.call<Arrived>("arrived")
    const faults = yield* Processes.judge(
      contender,
      arrived,
      yield* writes.call<ReadonlyMap<string, number>>("versions")
    )
    return { ...recoveryOf([...committed], [...arrived.times], at), ...faults } satisfies Recovery
  }).pipe(Effect.scoped)
