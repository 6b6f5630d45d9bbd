/** The lines of a process in its log: its start with its roles, the reason of its stop, and its end. */
import { Effect, Layer } from "effect"
import { type AppConfig, variableNames } from "./Config.ts"
import type { Role } from "./Roles.ts"
import * as FaultInjection from "./platform/FaultInjection.ts"
import * as Grace from "./platform/Grace.ts"
import * as UnknownVariables from "./UnknownVariables.ts"

/** Enough to see what is wrong. An environment with more such names belongs to another program. */
const maxUnknown = 10

/** Warns of variables that look like one of ours and are none, as `DATABSE_URL`. */
export const warnOfUnknown = (environment: Readonly<Record<string, unknown>>): Effect.Effect<void> =>
  Effect.forEach(
    UnknownVariables.find(Object.keys(environment), variableNames).slice(0, maxUnknown),
    (unknown) => Effect.logWarning(UnknownVariables.describe(unknown)),
    { discard: true }
  )

/** The first and the last line of a process. Its faults follow the first one: what they cause must not be taken for a failure. */
export const layer = (config: AppConfig, roles: ReadonlySet<Role>): Layer.Layer<never> =>
  Layer.effectDiscard(
    Effect.acquireRelease(
      Effect.gen(function* () {
        yield* Effect.logInfo("the service starts").pipe(
          Effect.annotateLogs({ pid: process.pid, roles: [...roles].join(",") })
        )
        for (const [point, fault] of config.faults ?? []) {
          yield* Effect.logWarning(`a fault is set: ${FaultInjection.describe(point, fault)}`)
        }
      }),
      () => Effect.logInfo("the service has stopped")
    )
  )

/** The line at the beginning of a stop, with its reason. It belongs on top: a scope ends from its top. */
export const stopping: Layer.Layer<never> = Layer.effectDiscard(
  Effect.addFinalizer(() => Effect.logInfo(`the service stops: ${Grace.reason() ?? "a part of it has failed"}`))
)
