/** Begins no task of a type that an operator has paused. Tasks that run end as always. Decorates {@link TaskClaim}. */
import { Effect, Layer } from "effect"
import { TaskClaim } from "../../tasks/TaskClaim.ts"
import { TaskWakeup } from "../../tasks/TaskWakeup.ts"
import { Pauses } from "./Pauses.ts"

export const layer: Layer.Layer<TaskClaim, never, TaskClaim | TaskWakeup> = Layer.effect(
  TaskClaim,
  Effect.gen(function* () {
    const claims = yield* TaskClaim
    const wakeup = yield* TaskWakeup
    const pauses = yield* Pauses
    let paused: ReadonlyArray<string> = yield* pauses.names("task type")
    yield* pauses.onChange(
      Effect.gen(function* () {
        const now = yield* pauses.names("task type")
        const resumed = paused.filter((typeName) => !now.includes(typeName))
        paused = now
        // Tasks that waited are due now.
        yield* Effect.forEach(resumed, wakeup.wake, { discard: true })
      })
    )
    return TaskClaim.of({
      claim: (wanted, worker) =>
        Effect.suspend(() =>
          claims.claim(
            wanted.filter(({ typeName }) => !paused.includes(typeName)),
            worker
          )
        ),
      nextDue: (typeNames, since) =>
        Effect.suspend(() =>
          claims.nextDue(
            typeNames.filter((typeName) => !paused.includes(typeName)),
            since
          )
        )
    })
  })
)
