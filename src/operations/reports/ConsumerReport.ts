/** The operator's view of the consumers: what of each waits, whether it is paused, and how far it is behind. */
import { Context, Effect, Layer, Schema } from "effect"
import { ConsumerLag, Lag } from "./ConsumerLag.ts"
import { InboxReport, Status } from "./InboxReport.ts"
import { PauseDecisions } from "../pauses/PauseDecisions.ts"

/** A consumer, with its partitions as the broker knows them. */
export const Entry = Schema.Struct({ ...Status.fields, ...Lag.fields, isPaused: Schema.Boolean }).annotate({
  identifier: "Consumer"
})
export type Entry = typeof Entry.Type

export class ConsumerReport extends Context.Service<
  ConsumerReport,
  {
    /** Every consumer. It ends within seconds, also while the broker is away. */
    readonly all: Effect.Effect<ReadonlyArray<Entry>>
  }
>()("paid-once/operations/reports/ConsumerReport") {
  static readonly layer: Layer.Layer<ConsumerReport, never, ConsumerLag | InboxReport | PauseDecisions> = Layer.effect(
    ConsumerReport,
    Effect.gen(function* () {
      const lag = yield* ConsumerLag
      const inbox = yield* InboxReport
      const pauses = yield* PauseDecisions
      return ConsumerReport.of({
        all: Effect.gen(function* () {
          const lags = yield* lag.all
          const statuses = yield* inbox.status(lags.map(({ consumer }) => consumer))
          const paused = new Set((yield* pauses.all).filter(({ kind }) => kind === "consumer").map(({ name }) => name))
          return lags.flatMap((one) => {
            const status = statuses.find(({ consumer }) => consumer === one.consumer)
            return status === undefined ? [] : [{ ...status, ...one, isPaused: paused.has(one.consumer) }]
          })
        }).pipe(Effect.withSpan("ConsumerReport.all"))
      })
    })
  )
}
