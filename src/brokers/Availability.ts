/** The metric `broker_available`: 1 while the broker responds. It follows the service's own exchanges; there is no probe. */
import { Effect, Layer, Metric, Stream, SubscriptionRef } from "effect"
import { Broker } from "./Broker.ts"

const gauge = Metric.gauge("broker_available", { description: "1 while the last exchange with the broker went well" })

export const layer: Layer.Layer<never, never, Broker> = Layer.effectDiscard(
  Effect.gen(function* () {
    const { available } = yield* Broker
    yield* SubscriptionRef.changes(available).pipe(
      Stream.runForEach((now) => Metric.update(gauge, now ? 1 : 0)),
      Effect.forkScoped
    )
  })
)
