/**
 * Liveness and readiness of this process.
 *
 * A process is unready only where it can't take an order: without the database, while it starts, and while it stops. Without the broker, or
 * with a fiber that is being restarted, it is degraded: events wait in the outbox meanwhile.
 *
 * Anybody may ask, as often as they like: all who ask share one look at the database and the parts, at most one a second.
 */
import { Context, Effect, Fiber, FiberSet, Latch, Layer, Schema, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import * as DatabaseOutage from "../platform/DatabaseOutage.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import { Outages } from "../platform/Outages.ts"
import { Fibers, type FiberState, stuckAfterMillis } from "../platform/Supervised.ts"

/** The report of one part. Further fields are for the operator. */
export const PartReport = Schema.StructWithRest(
  Schema.Struct({ status: Schema.Literals(["ready", "degraded", "unready"]) }),
  [Schema.Record(Schema.String, Schema.Json)]
)
export type PartReport = typeof PartReport.Type

/** The worst status of the parts, and the parts by name. */
export const HealthReport = Schema.Struct({
  status: Schema.Literals(["ready", "degraded", "unready"]),
  parts: Schema.Record(Schema.String, PartReport)
}).annotate({ identifier: "Health" })
export type HealthReport = typeof HealthReport.Type

/** A part of health. One that does not answer within {@link partTimeoutMillis} counts as degraded. */
export interface HealthPart {
  readonly name: string
  readonly report: Effect.Effect<PartReport>
}

/**
 * The parts of this process. Each role adds its own, so that health does not judge roles that run elsewhere.
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

/** Whether this process works. Its port may answer before the work has begun, and while it ends. */
export class Readiness extends Context.Service<
  Readiness,
  {
    readonly phaseUnsafe: () => "starting" | "working" | "draining"
    /** Ends the start, during which the process is unready. */
    readonly begin: Effect.Effect<void>
    /** Turns health unready for good. The server still answers requests, with `Connection: close`. */
    readonly drain: Effect.Effect<void>
    /** Waits for {@link drain}: an answer without an end has to end itself then. */
    readonly draining: Effect.Effect<void>
  }
>()("paid-once/http/Readiness") {
  static readonly layer: Layer.Layer<Readiness> = Layer.effect(
    Readiness,
    Effect.gen(function* () {
      let phase: "starting" | "working" | "draining" = "starting"
      const drained = yield* Latch.make(false)
      return Readiness.of({
        phaseUnsafe: () => phase,
        begin: Effect.sync(() => {
          if (phase === "starting") phase = "working"
        }),
        drain: Effect.suspend(() => {
          phase = "draining"
          return drained.open
        }),
        draining: drained.await
      })
    })
  )

  /** For a process without the role `http`: built above the other roles, which have begun by then and end after this. */
  static readonly layerWorking: Layer.Layer<never, never, Readiness> = Layer.effectDiscard(
    Effect.gen(function* () {
      const { begin, drain } = yield* Readiness
      yield* Effect.acquireRelease(begin, () => drain)
    })
  )
}

/** Orchestrators wait one to three seconds for an answer: this must be shorter. */
const partTimeoutMillis = 2_000

/** Those who watch ask once a second at most: they see each change with their next question. */
const freshMillis = 1_000

/** The reports that had to be asked for, by name. */
type Looked = ReadonlyArray<readonly [string, PartReport]>

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
        const outages = yield* Outages
        // Of the process, and not of one who asks: that one may leave, and others still wait.
        const fork = yield* FiberSet.makeRuntime<never, Looked, never>()

        const database = sql`SELECT 1`.pipe(
          Effect.as<PartReport>({ status: "ready" }),
          Effect.timeout(partTimeoutMillis),
          // The answer gives no reason: a driver's message may name hosts and users. The log does.
          Effect.catchCause((cause) =>
            Effect.as(Effect.logDebug("health: the database does not answer", cause), {
              status: "unready"
            } satisfies PartReport)
          )
        )
        const bounded = ({ name, report }: HealthPart) => {
          const stopped = `health: ${name}`
          const silence = { subject: `the part ${name} of health`, reason: `no answer in ${partTimeoutMillis} ms` }
          return report.pipe(
            Effect.tap(outages.recovered(stopped)),
            Effect.timeoutOrElse({
              duration: partTimeoutMillis,
              orElse: () => Effect.as(outages.failed(stopped, silence), degraded)
            }),
            Effect.catchCause((cause) => {
              const outage = DatabaseOutage.told(cause)
              const tell =
                outage === undefined
                  ? Effect.logWarning(`health: ${name} does not answer`, cause)
                  : outages.failed(stopped, outage)
              return Effect.as(tell, degraded)
            })
          )
        }

        /** The database and the added parts, by name. */
        const look = Effect.gen(function* () {
          const all = [
            ["database", database] as const,
            ...(yield* others.all).map((part) => [part.name, bounded(part)] as const)
          ]
          // Side by side: one after the other they could take a multiple of the timeout.
          return yield* Effect.forEach(all, ([name, part]) => Effect.map(part, (found) => [name, found] as const), {
            concurrency: "unbounded"
          })
        })
        let last: { readonly beganMillis: number; readonly looking: Fiber.Fiber<Looked> } | undefined
        const shared = Effect.flatMap(Monotonic.millis, (now) => {
          const isShared =
            last !== undefined && (last.looking.pollUnsafe() === undefined || now - last.beganMillis < freshMillis)
          if (last === undefined || !isShared) last = { beganMillis: now, looking: fork(look) }
          return Fiber.join(last.looking)
        })

        const report = Effect.gen(function* () {
          const looked = yield* shared
          // What this process knows of itself costs nothing, and is never old.
          const now = yield* Monotonic.millis
          const parts: Record<string, PartReport> = {}
          const phase = readiness.phaseUnsafe()
          if (phase === "starting") parts["start"] = { status: "unready" }
          if (phase === "draining") parts["shutdown"] = { status: "unready" }
          for (const state of yield* fibers.states) parts[`fiber:${state.name}`] = ofFiber(state, now)
          Object.assign(parts, Object.fromEntries(looked))
          return { status: worst(Object.values(parts)), parts }
        })
        return Health.of({ report })
      })
    )
}

const degraded: PartReport = { status: "degraded" }

const ofFiber = (state: FiberState, nowMillis: number): PartReport => {
  // The fiber may have made progress since the clock was read.
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
