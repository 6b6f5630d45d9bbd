/**
 * Every wait that grows from attempt to attempt, as a named policy. A policy is a `Schedule`: it says how long to wait after the first failure, the second, and so
 * on, and whether it ends. No other file computes a backoff (test/platform/Backoff.test.ts), and docs/backoff.md draws each policy.
 *
 * A fiber that fails, waits and tries again uses `Effect.retry(effect, policy)`, or {@link retry} where failures are rare. Other code gets its delay from {@link millisAfter}: code
 * for a row that stores its next due time, or a loop that does other work meanwhile.
 */
import { Duration, Effect, Pull, Random, Schedule } from "effect"
import * as Monotonic from "./Monotonic.ts"

/** Delays between attempts. The outputs of the schedule are not used. */
export type Policy = Schedule.Schedule<unknown>

/** After the n-th failure, n from 0: `min(cap, base · 2ⁿ)`, never ending. */
export const capped = (baseMillis: number, capMillis: number): Policy =>
  Schedule.exponential(baseMillis).pipe(
    Schedule.modifyDelay(({ duration }) => Effect.succeed(Math.min(capMillis, Duration.toMillis(duration))))
  )

/**
 * After the n-th failure, n from 0: `random(0, min(cap, base · 2ⁿ))`, never ending. The whole delay is random, so processes that failed together
 * come back apart. `Schedule.jittered` changes a delay by a fifth only, which leaves them together.
 *
 * Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
 */
export const fullJitter = (baseMillis: number, capMillis: number): Policy =>
  capped(baseMillis, capMillis).pipe(
    Schedule.modifyDelay(({ duration }) => Effect.map(Random.next, (random) => random * Duration.toMillis(duration)))
  )

/** These delays, one after the other, each times 0.8 … 1.2: what failed together comes back apart, and an operator can still read the plan. */
export const staircase = (delaysMillis: ReadonlyArray<number>): Policy =>
  Schedule.forever.pipe(
    Schedule.upTo({ times: delaysMillis.length }),
    Schedule.modifyDelay(({ attempt }) => Effect.succeed(delaysMillis[attempt - 1] ?? 0)),
    Schedule.jittered
  )

/**
 * `policy`, begun anew by an attempt that failed only after it had run for longer than `millis`. A loop that worked for days and then breaks waits
 * as after its first failure.
 */
export const resetAfter =
  (millis: number) =>
  (policy: Policy): Policy =>
    Schedule.fromStep(
      Effect.map(Schedule.toStep(policy), (first) => {
        let step = first
        let startedMillis = Infinity
        return Effect.fnUntraced(function* (now: number, failure: unknown) {
          if ((yield* Monotonic.millis) - startedMillis > millis) step = yield* Schedule.toStep(policy)
          const [output, delay] = yield* step(now, failure)
          startedMillis = (yield* Monotonic.millis) + Duration.toMillis(delay)
          return [output, delay] as [unknown, Duration.Duration]
        })
      })
    )

/** `Effect.retry` of what succeeds as a rule: its first failure sets `policy` up. That costs as much as the other effects of a short transaction. */
export const retry = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  policy: Schedule.Schedule<unknown, E>,
  isWorthRetrying: (error: E) => boolean = () => true
): Effect.Effect<A, E, R> =>
  Effect.catch(effect, (error) => {
    const first = [Effect.fail(error)]
    return Effect.suspend(() => first.pop() ?? effect).pipe(Effect.retry({ schedule: policy, while: isWorthRetrying }))
  })

/** More steps than any policy needs to reach its cap or its end: 64 doublings, or the 50 delays that a setting may have. */
const maxSteps = 64

/**
 * The delays of `policy` after the first failure, the second, … the `failures`-th, in milliseconds; fewer where the policy ends before. For a
 * statement that picks one by a row's count of attempts.
 */
export const delaysMillis = Effect.fnUntraced(function* (policy: Policy, failures: number) {
  const step = yield* Schedule.toStep(policy)
  const delays: Array<number> = []
  while (delays.length < Math.min(failures, maxSteps)) {
    // None of our policies looks at the time.
    const next = yield* Pull.catchDone(step(0, undefined), () => Effect.undefined)
    if (next === undefined) break
    delays.push(Duration.toMillis(next[1]))
  }
  return delays
})

/** The delay after this many failures in a row, 1 for the first, in milliseconds; undefined where `policy` allows no further attempt. */
export const millisAfterOrEnd = (policy: Policy, failures: number): Effect.Effect<number | undefined> =>
  Effect.map(delaysMillis(policy, failures), (delays) => delays[Math.min(failures, maxSteps) - 1])

/** The delay after this many failures in a row, 1 for the first, in milliseconds. For policies that never end. */
export const millisAfter = (policy: Policy, failures: number): Effect.Effect<number> =>
  Effect.map(millisAfterOrEnd(policy, failures), (millis) => millis ?? Infinity)

const second = 1_000
const minute = 60 * second
const hour = 60 * minute
const day = 24 * hour

/** The longest wait of {@link restart}, unless a loop asks for a shorter one. */
export const restartCapMillis = 30 * second
/**
 * A supervised fiber: the first restart within a tenth of a second, and one in half a minute at least while it keeps failing. A run that was
 * longer than the longest wait counts as a success, whatever ended it.
 */
export const restart = (capMillis: number = restartCapMillis): Policy =>
  fullJitter(100, capMillis).pipe(resetAfter(capMillis))

/**
 * A transaction that lost against a concurrent one. The other one is over in a few milliseconds, as a rule. An effect that still collides after
 * eight retries has a problem that further ones would hide.
 */
export const transaction: Policy = fullJitter(10, second).pipe(Schedule.upTo({ times: 8 }))

/** When Postgres restarts, every process loses its control connection at the same moment, and must not come back at the same one. Little beside a session's timeout. */
export const reconnect: Policy = fullJitter(200, 200)

/** A partition of a topic that can't be reached: a broker that comes back is noticed within half a minute. */
export const partitionPause = (baseMillis: number, capMillis: number): Policy => fullJitter(baseMillis, capMillis)
export const partitionPauseBaseMillis = 100
export const partitionPauseCapMillis = 30 * second

/** A lane whose turn ended in a defect: a short outage of the database delays it little, and a lane that keeps failing costs little. */
export const lane: Policy = fullJitter(100, 30 * second)

/**
 * The head of a held aggregate, on both sides: a refused event, or an event that its subscriber fails on. The setting is the base
 * (`OUTBOX_RETRY_BASE_MILLIS`, `INBOX_RETRY_BASE_MILLIS`). After a wait of more than a day nobody would know any more what was tried.
 */
export const hold = (baseMillis: number): Policy => fullJitter(2 * baseMillis, day)
/** How long the waits of {@link hold} last together, on average: each is half its bound. The cap is left out. */
export const holdTotalMillis = (baseMillis: number, attempts: number): number => baseMillis * 2 ** attempts
export const outboxHoldBaseMillis = 2 * second
export const inboxHoldBaseMillis = 200

/** A held event that could not be applied because the database or a dependency was away. Such a failure is not counted as an attempt. */
export const inboxTransient: Policy = fullJitter(200, 30 * second)

/** The embedded Postgres has died: the processes that use it look after it apart, and the first one of them starts it. */
export const embeddedServerCapMillis = 5 * second
export const embeddedServer: Policy = fullJitter(200, embeddedServerCapMillis)

/** A slice that its consumer failed on, with the embedded broker: soon again after a hiccup, and no burden for what is down. */
export const embeddedSlice: Policy = fullJitter(100, 10 * second)

/** A slice that its consumer failed on, with Kafka. */
export const kafkaSlice: Policy = fullJitter(200, 30 * second)

/** An offset commit that Kafka did not answer. */
export const kafkaCommit: Policy = fullJitter(100, 5 * second)

/** The swap of a rebuilt projection that could not lock its tables: the slices that waited behind its lock go first. */
export const swap: Policy = fullJitter(100, 2 * second)

/** A report of the sandbox gateway that nobody took. Not random: there is one sender. */
export const webhook: Policy = capped(500, minute)

/** The delays between the runs of a failing task. They last over a night and a working day, in which an operator can repair the cause. */
export const taskDelaysMillis: ReadonlyArray<number> = [
  ...[1, 5, 15, 30].map((minutes) => minutes * minute),
  ...[1, 2, 4, 8, 12, 24].map((hours) => hours * hour)
]

/** A task whose run failed because the database was away, or its disk was full. Such a run is not counted. */
export const taskOutage: Policy = fullJitter(10 * second, 10 * second)

/** The delays before each run that asks the gateway about a payment without an answer, the first run included. */
export const paymentRecoverDelaysMillis: ReadonlyArray<number> = [
  5 * second,
  15 * second,
  minute,
  5 * minute,
  30 * minute,
  2 * hour,
  6 * hour
]
