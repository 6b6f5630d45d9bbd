/**
 * Whether this process lives, and whether it should be sent requests.
 *
 * Only what stops an order from being taken makes it unready: the database, and a shutdown under way. A broker that is away or a
 * fiber that is being restarted degrades it: events wait in the outbox meanwhile.
 */
import { Clock, Context, Effect, Layer, Option, Ref, Schema, SubscriptionRef } from "effect"
import { SqlClient } from "effect/sql"
import { Broker } from "../messaging/broker/Broker.ts"
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

/** Parts that others bring, for example the lanes that the dispatcher owns. */
export const HealthParts = Context.Reference<ReadonlyArray<HealthPart>>("paid-once/http/HealthParts", {
  defaultValue: () => []
})

/** Whether this process still wants requests. */
export class Readiness extends Context.Service<
  Readiness,
  {
    readonly draining: Effect.Effect<boolean>
    /** Turns ready into unready, and answers with `Connection: close`, while the server still takes what comes. */
    readonly drain: Effect.Effect<void>
  }
>()("paid-once/http/Readiness") {
  static readonly layer: Layer.Layer<Readiness> = Layer.effect(
    Readiness,
    Effect.map(Ref.make(false), (draining) =>
      Readiness.of({ draining: Ref.get(draining), drain: Ref.set(draining, true) })
    )
  )
}

/** Orchestrators ask every few seconds and wait one to three: our own answer must come before theirs runs out. */
const partTimeoutMillis = 2_000

export class Health extends Context.Service<Health, { readonly report: Effect.Effect<HealthReport> }>()(
  "paid-once/http/Health"
) {
  /** Reports on the {@link Broker} where there is one around it, as there is in every process of the service. */
  static readonly layer: Layer.Layer<Health, never, Fibers | SqlClient.SqlClient | Readiness> = Layer.effect(
    Health,
    Effect.gen(function* () {
      const fibers = yield* Fibers
      const sql = yield* SqlClient.SqlClient
      const readiness = yield* Readiness
      const broker = yield* Effect.serviceOption(Broker)
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
        const now = yield* Clock.currentTimeMillis
        const parts: Record<string, PartReport> = {}
        if (yield* readiness.draining) parts["shutdown"] = { status: "unready" }
        parts["database"] = yield* database
        if (Option.isSome(broker)) {
          const available = yield* SubscriptionRef.get(broker.value.available)
          parts["broker"] = { status: available ? "ready" : "degraded", name: broker.value.name }
        }
        for (const state of yield* fibers.states) parts[`fiber:${state.name}`] = ofFiber(state, now)
        for (const [name, part] of yield* Effect.forEach(others, bounded, { concurrency: "unbounded" }))
          parts[name] = part
        return { status: worst(Object.values(parts)), parts }
      })
      return Health.of({ report })
    })
  )
}

const ofFiber = (state: FiberState, nowMillis: number): PartReport => {
  const silentMillis = nowMillis - state.lastProgressMillis
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
