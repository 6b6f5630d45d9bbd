/**
 * The one way a long-lived fiber is started here. A fiber forked by hand dies without a word; one started by {@link forkLoop}
 * is logged, restarted with jittered backoff, defects included, and stamps its progress, which health watches.
 */
import { Cause, Context, Effect, Layer, Metric, Random, type Scope } from "effect"
import * as Monotonic from "./Monotonic.ts"

/** What is known of a supervised fiber. Times are those of Monotonic.ts. */
export interface FiberState {
  readonly name: string
  readonly status: "running" | "restarting"
  readonly restarts: number
  readonly lastProgressMillis: number
  readonly lastError: string | undefined
}

/** A fiber whose last stamp is older than this is reported as stuck: many polls, and longer than any single wait of ours. */
export const stuckAfterMillis = 60_000

/** The supervised fibers of this process, for health and metrics. */
export class Fibers extends Context.Service<
  Fibers,
  {
    readonly states: Effect.Effect<ReadonlyArray<FiberState>>
    readonly update: (name: string, change: (state: FiberState) => FiberState) => Effect.Effect<void>
    readonly remove: (name: string) => Effect.Effect<void>
  }
>()("paid-once/platform/Fibers") {
  static readonly layer = Layer.sync(Fibers, () => {
    // Changed in place: a loop's turn is stamped here, and there may be thousands of them a second.
    const states = new Map<string, FiberState>()
    return Fibers.of({
      states: Effect.sync(() => [...states.values()]),
      update: (name, change) =>
        Effect.map(Monotonic.millis, (now) => {
          const fresh: FiberState = {
            name,
            status: "running",
            restarts: 0,
            lastProgressMillis: now,
            lastError: undefined
          }
          states.set(name, change(states.get(name) ?? fresh))
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
 * `random(0, min(cap, base · 2ⁿ))` for the n-th wait: exponential backoff with full jitter, so that what failed together does
 * not come back together.
 *
 * Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
 */
export const fullJitterMillis = (n: number, baseMillis: number, capMillis: number): Effect.Effect<number> =>
  Effect.map(Random.next, (random) => random * Math.min(capMillis, baseMillis * 2 ** n))

/** The first restart comes within a tenth of a second; a fiber that keeps failing settles at one try in half a minute. */
const restartBaseMillis = 100
const longestRestartMillis = 30_000

/**
 * Runs `step` for ever in a fiber of the surrounding scope.
 *
 * **Details**
 *
 * A failure or a defect of `step` is logged with its cause and retried with full jitter. A success resets the backoff, and so does
 * a run that was longer than the longest wait, `restartCapMillis`: a step that runs for days has succeeded, whatever ends it. Each completed
 * step stamps the fiber's progress; one that runs for long does so itself, through the `stamp` it is given. The fiber ends with the scope, and only then: `step` must be interruptible where it waits.
 */
export const forkLoop = Effect.fnUntraced(function* <A, E, R>(
  name: string,
  step: Effect.Effect<A, E, R> | ((stamp: Effect.Effect<void>) => Effect.Effect<A, E, R>),
  { restartCapMillis = longestRestartMillis }: { readonly restartCapMillis?: number } = {}
): Effect.fn.Return<void, never, R | Fibers | Scope.Scope> {
  const fibers = yield* Fibers
  const restarts = Metric.withAttributes(restartsTotal, { fiber: name })
  // There at 0 from the start: a rule compares with what was before the first restart.
  yield* Metric.value(restarts)
  yield* fibers.update(name, (state) => state)
  yield* Effect.addFinalizer(() => fibers.remove(name))
  const stamp = Effect.flatMap(Monotonic.millis, (now) =>
    fibers.update(name, (state) => ({ ...state, status: "running", lastProgressMillis: now }))
  )
  let failures = 0
  const failed = Effect.fnUntraced(function* (cause: Cause.Cause<E>, startedMillis: number) {
    if ((yield* Monotonic.millis) - startedMillis > restartCapMillis) failures = 0
    const waitMillis = yield* fullJitterMillis(failures++, restartBaseMillis, restartCapMillis)
    yield* Metric.update(restarts, 1)
    yield* fibers.update(name, (state) => ({
      ...state,
      status: "restarting",
      restarts: state.restarts + 1,
      lastError: String(Cause.squash(cause))
    }))
    yield* Effect.logWarning(`${name} failed and will be restarted in ${Math.round(waitMillis)} ms`, cause)
    yield* Effect.sleep(waitMillis)
  })
  const succeeded = Effect.suspend(() => {
    failures = 0
    return stamp
  })
  yield* Effect.flatMap(Monotonic.millis, (startedMillis) =>
    Effect.matchCauseEffect(Effect.isEffect(step) ? step : step(stamp), {
      onFailure: (cause) => failed(cause, startedMillis),
      onSuccess: () => succeeded
    })
  ).pipe(
    Effect.forever,
    // Its polls and samples belong to nobody's trace; what it does for somebody says so (Tracing.within).
    Effect.withTracerEnabled(false),
    Effect.forkScoped
  )
})
