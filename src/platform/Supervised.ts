/**
 * Supervised fibers: every long-lived loop that can fail is started by {@link forkLoop}, which logs its failures and defects, retries them
 * by a schedule with jittered backoff, and stamps its progress for health. A fiber that is forked by hand ends without a message.
 */
import { Cause, Clock, Context, Duration, Effect, Layer, Metric, Schedule, type Scope } from "effect"
import * as Backoff from "./Backoff.ts"
import * as DatabaseOutage from "./DatabaseOutage.ts"
import * as Monotonic from "./Monotonic.ts"
import * as Outages from "./Outages.ts"

/** The state of a supervised fiber. Times are those of Monotonic.ts. */
export interface FiberState {
  readonly name: string
  readonly status: "running" | "restarting"
  readonly restarts: number
  readonly lastProgressMillis: number
  readonly lastError: string | undefined
}

/** Health reports a fiber as stuck when its last stamp is older than this: many polls, and longer than any single wait of a loop. */
export const stuckAfterMillis = 60_000

/** The supervised fibers of this process, for health and metrics. */
export class Fibers extends Context.Service<
  Fibers,
  {
    readonly states: Effect.Effect<ReadonlyArray<FiberState>>
    readonly update: (name: string, change: (state: FiberState, nowMillis: number) => FiberState) => Effect.Effect<void>
    readonly remove: (name: string) => Effect.Effect<void>
  }
>()("paid-once/platform/Fibers") {
  static readonly layer = Layer.sync(Fibers, () => {
    // Changed in place: loops stamp their progress up to thousands of times a second.
    const states = new Map<string, FiberState>()
    const fresh = { status: "running", restarts: 0, lastError: undefined } as const
    return Fibers.of({
      states: Effect.sync(() => [...states.values()]),
      update: (name, change) =>
        Effect.clockWith((clock) => {
          const now = Monotonic.millisUnsafe(clock)
          states.set(name, change(states.get(name) ?? { ...fresh, name, lastProgressMillis: now }, now))
          return Effect.void
        }),
      remove: (name) => Effect.sync(() => void states.delete(name))
    })
  })
}

const restartsTotal = Metric.counter("fiber_restarts_total", {
  description: "Restarts of supervised fibers after a failure",
  incremental: true
})

/**
 * Runs `step` for ever in a fiber of the surrounding scope.
 *
 * **Details**
 *
 * A failure or a defect of `step` is logged with its cause, or reported as an outage (Outages.ts). It is retried by `Backoff.restart`: with full jitter,
 * at most `restartCapMillis` apart. A success begins the schedule anew, and so does a run that was longer than the longest wait. Each completed step stamps the fiber's
 * progress; a step that runs for long does so itself, through the `stamp` it is given. The fiber ends with the scope, and only then: `step`
 * must be interruptible where it waits.
 */
export const forkLoop = Effect.fnUntraced(function* <A, E, R>(
  name: string,
  step: Effect.Effect<A, E, R> | ((stamp: Effect.Effect<void>) => Effect.Effect<A, E, R>),
  { restartCapMillis }: { readonly restartCapMillis?: number } = {}
): Effect.fn.Return<void, never, R | Fibers | Scope.Scope> {
  const fibers = yield* Fibers
  const restarts = Metric.withAttributes(restartsTotal, { fiber: name })
  // Shown as 0 from the start: an alert compares with the value before the first restart.
  yield* Metric.value(restarts)
  yield* fibers.update(name, (state) => state)
  yield* Effect.addFinalizer(() => fibers.remove(name))
  const outages = yield* Outages.Outages
  const clock = yield* Clock.Clock
  const stamp = fibers.update(name, (state, now) => ({ ...state, status: "running", lastProgressMillis: now }))
  const succeeded = Effect.andThen(stamp, outages.recovered(name))
  let startedMillis = Number.NEGATIVE_INFINITY
  /** A step may stamp its progress before it does what had failed. One that has run for longer than any wait has done it. */
  const stampInStep = Effect.suspend(() =>
    Monotonic.millisUnsafe(clock) - startedMillis > (restartCapMillis ?? Backoff.restartCapMillis) ? succeeded : stamp
  )
  const tell = (cause: Cause.Cause<E>, line: string) => {
    const outage = Outages.ofCause(cause) ?? DatabaseOutage.told(cause)
    return outage === undefined
      ? Effect.andThen(outages.recovered(name), Effect.logWarning(line, cause))
      : Effect.andThen(outages.failed(name, outage), Effect.logDebug(line, cause))
  }
  const restart = Backoff.restart(restartCapMillis).pipe(
    Schedule.setInputType<Cause.Cause<E>>(),
    Schedule.tap(({ duration, input: cause }) => {
      const lastError = String(Cause.squash(cause))
      return Effect.all([
        Metric.update(restarts, 1),
        fibers.update(name, (state) => ({ ...state, status: "restarting", restarts: state.restarts + 1, lastError })),
        tell(cause, `${name} failed and will be restarted in ${Math.round(Duration.toMillis(duration))} ms`)
      ])
    })
  )
  yield* Effect.suspend(() => {
    startedMillis = Monotonic.millisUnsafe(clock)
    return Effect.isEffect(step) ? step : step(stampInStep)
  }).pipe(
    // A defect is retried as a failure is.
    Effect.sandbox,
    // Inside of the loop, so that a success ends this retry and the next failure begins the schedule anew.
    (run) => Backoff.retry(run, restart),
    Effect.andThen(succeeded),
    Effect.forever,
    // Polls and samples belong to no trace. Work for a request joins its trace by Tracing.within.
    Effect.withTracerEnabled(false),
    Effect.forkScoped
  )
})
