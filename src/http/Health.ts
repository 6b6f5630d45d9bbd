/**
 * Whether this process lives, and whether it does what its roles are for.
 *
 * Only what stops an order from being taken makes it unready: the database, a start that is not over, and a shutdown under way. A broker that
 * is away or a fiber that is being restarted degrades it: events wait in the outbox meanwhile.
 */
import { Context, Effect, Layer, Ref, Schema, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import * as Monotonic from "../platform/Monotonic.ts"
import { Fibers, type FiberState, stuckAfterMillis } from "../platform/Supervised.ts"

/** What a part says of itself. Further fields tell an operator more. */
export const PartReport = Schema.StructWithRest(
  Schema.Struct({ status: Schema.Literals(["ready", "degraded", "unready"]) }),
  [Schema.Record(Schema.String, Schema.Json)]
)
export type PartReport = typeof PartReport.Type

/** The worst of the parts, and the parts by name. */
export const HealthReport = Schema.Struct({
  status: Schema.Literals(["ready", "degraded", "unready"]),
  parts: Schema.Record(Schema.String, PartReport)
}).annotate({ identifier: "Health" })
export type HealthReport = typeof HealthReport.Type

/** A part that health asks: it must answer by itself within {@link partTimeoutMillis}, or counts as degraded. */
export interface HealthPart {
  readonly name: string
  readonly report: Effect.Effect<PartReport>
}

/**
 * The parts of this process: each of its roles brings its own (the dispatcher its lanes, for example), so that health judges no role that
 * runs elsewhere.
 */
export class HealthParts extends Context.Service<
  HealthParts,
  {
    readonly all: Effect.Effect<ReadonlyArray<HealthPart>>
    /** Adds a part for as long as the scope is open. */
    readonly add: (part: HealthPart) => Effect.Effect<void, never, Scope.Scope>
  }
>()("paid-once/http/HealthParts") {
  static readonly layer: Layer.Layer<HealthParts> = Layer.sync(HealthParts, () => {
    const parts = new Set<HealthPart>()
    return HealthParts.of({
      all: Effect.sync(() => [...parts]),
      add: (part) =>
        Effect.acquireRelease(
          Effect.sync(() => void parts.add(part)),
          () => Effect.sync(() => void parts.delete(part))
        )
    })
  })
}

/** Whether this process is at work: its port may answer before its work has begun, and while it ends. */
export class Readiness extends Context.Service<
  Readiness,
  {
    readonly phase: Effect.Effect<"starting" | "working" | "draining">
    /** Ends the start, during which the process is unready. */
    readonly begin: Effect.Effect<void>
    /** Turns ready into unready, and answers with `Connection: close`, while the server still takes what comes. For good. */
    readonly drain: Effect.Effect<void>
  }
>()("paid-once/http/Readiness") {
  static readonly layer: Layer.Layer<Readiness> = Layer.effect(
    Readiness,
    Effect.map(Ref.make<"starting" | "working" | "draining">("starting"), (phase) =>
      Readiness.of({
        phase: Ref.get(phase),
        begin: Ref.update(phase, (now) => (now === "starting" ? "working" : now)),
        drain: Ref.set(phase, "draining")
      })
    )
  )

  /** To be built over the work, where no requests are taken: it has begun when this is built, and ends after this. */
  static readonly layerWorking: Layer.Layer<never, never, Readiness> = Layer.effectDiscard(
    Effect.gen(function* () {
      const { begin, drain } = yield* Readiness
      yield* Effect.acquireRelease(begin, () => drain)
    })
  )
}

/** Orchestrators ask every few seconds and wait one to three: our own answer must come before theirs runs out. */
const partTimeoutMillis = 2_000

export class Health extends Context.Service<Health, { readonly report: Effect.Effect<HealthReport> }>()(
  "paid-once/http/Health"
) {
  static readonly layer: Layer.Layer<Health, never, Fibers | HealthParts | Readiness | SqlClient.SqlClient> =
    Layer.effect(
      Health,
      Effect.gen(function* () {
        const fibers = yield* Fibers
        const sql = yield* SqlClient.SqlClient
        const readiness = yield* Readiness
        const others = yield* HealthParts

        const database = sql`SELECT 1`.pipe(
          Effect.as<PartReport>({ status: "ready" }),
          Effect.timeout(partTimeoutMillis),
          // No reason in the answer: a driver's message may name hosts and users. The log has it.
          Effect.catchCause((cause) =>
            Effect.as(Effect.logDebug("health: the database does not answer", cause), {
              status: "unready"
            } satisfies PartReport)
          )
        )
        const bounded = ({ name, report }: HealthPart) =>
          report.pipe(
            Effect.timeout(partTimeoutMillis),
            Effect.catchCause((cause) =>
              Effect.as(Effect.logWarning(`health: ${name} does not answer`, cause), {
                status: "degraded"
              } satisfies PartReport)
            ),
            Effect.map((part) => [name, part] as const)
          )

        const report = Effect.gen(function* () {
          const now = yield* Monotonic.millis
          const parts: Record<string, PartReport> = {}
          const phase = yield* readiness.phase
          if (phase === "starting") parts["start"] = { status: "unready" }
          if (phase === "draining") parts["shutdown"] = { status: "unready" }
          const added = Effect.forEach(yield* others.all, bounded, { concurrency: "unbounded" })
          // Side by side: one after the other they could take twice as long as whoever asks waits.
          const [ofDatabase, ofOthers] = yield* Effect.all([database, added], { concurrency: "unbounded" })
          parts["database"] = ofDatabase
          for (const state of yield* fibers.states) parts[`fiber:${state.name}`] = ofFiber(state, now)
          for (const [name, part] of ofOthers) parts[name] = part
          return { status: worst(Object.values(parts)), parts }
        })
        return Health.of({ report })
      })
    )
}

const ofFiber = (state: FiberState, nowMillis: number): PartReport => {
  // It may have come on since we looked at the clock.
  const silentMillis = Math.max(0, Math.round(nowMillis - state.lastProgressMillis))
  const stuck = silentMillis > stuckAfterMillis
  return {
    status: stuck || state.status === "restarting" ? "degraded" : "ready",
    state: stuck ? "stuck" : state.status,
    restarts: state.restarts,
    silentMillis
  }
}

const worst = (parts: ReadonlyArray<PartReport>): PartReport["status"] =>
  parts.some((part) => part.status === "unready")
    ? "unready"
    : parts.some((part) => part.status === "degraded")
      ? "degraded"
      : "ready"
