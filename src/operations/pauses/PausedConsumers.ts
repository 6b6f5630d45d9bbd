/**
 * A consumer that an operator has paused reads nothing, in any process: it ends its slices, leaves its group, and joins it again when it is
 * resumed. Its held events wait, too. Decorates {@link Broker} and the inbox's {@link Holds}.
 */
import { Context, Effect, Layer } from "effect"
import { Broker } from "../../brokers/Broker.ts"
import { Holds } from "../../inbox/holds/Holds.ts"
import { Pauses } from "./Pauses.ts"

export const layer: Layer.Layer<Broker | Holds, never, Broker | Holds> = Layer.effectContext(
  Effect.gen(function* () {
    const broker = yield* Broker
    const holds = yield* Holds
    const pauses = yield* Pauses
    /** Runs `work` while the consumer is not paused, and interrupts it when it is. */
    const whileRunning = <A, E, R>(consumer: string, work: Effect.Effect<A, E, R>) =>
      Effect.forever(
        Effect.andThen(
          pauses.awaitPaused("consumer", consumer, false),
          Effect.raceFirst(Effect.andThen(work, Effect.never), pauses.awaitPaused("consumer", consumer, true))
        )
      )
    return Context.make(
      Broker,
      Broker.of({
        ...broker,
        // A group has its consumer's name.
        consume: (options, handle) => whileRunning(options.group, broker.consume(options, handle))
      })
    ).pipe(
      Context.add(
        Holds,
        Holds.of({
          ...holds,
          forkRetries: (subscriber) =>
            whileRunning(
              subscriber.name,
              Effect.scoped(Effect.andThen(holds.forkRetries(subscriber), Effect.never))
            ).pipe(Effect.forkScoped({ startImmediately: true }), Effect.asVoid)
        })
      )
    )
  })
)
