/**
 * Whether the database has all that its topic tells. A database that was restored from a backup lacks the newest events until it is rolled forward
 * (docs/restore.md). A repair there would write events with versions that the topic has for others.
 */
import { Context, Effect, Layer } from "effect"
import type { Check } from "../../operations/doctor/Check.ts"

export class TopicHistory extends Context.Service<
  TopicHistory,
  {
    /** Why nothing may be repaired, in words; undefined where the database has all events of its topic. */
    readonly refusal: Effect.Effect<string | undefined>
  }
>()("paid-once/application/reconciliation/TopicHistory") {
  /** For a topic that is in the database: a backup has both of one moment. */
  static readonly layerEmbedded: Layer.Layer<TopicHistory> = Layer.succeed(TopicHistory, { refusal: Effect.undefined })

  /** By the doctor's check. While it can't look, nothing is repaired. */
  static readonly layerChecked = <R>(check: Check<R>): Layer.Layer<TopicHistory, never, R> =>
    Layer.effect(
      TopicHistory,
      Effect.map(Effect.context<R>(), (context) => ({
        refusal: Effect.orDie(check.run).pipe(
          Effect.map((outcome) =>
            outcome._tag === "NotChecked"
              ? `nobody can tell now whether the database is behind its topic: ${outcome.why}`
              : outcome.findings.length > 0
                ? "the database does not have its topic's history: paid-once doctor tells what is missing, and docs/restore.md what to do"
                : undefined
          ),
          // With the settings of this process, whoever asks.
          Effect.provideContext(context)
        )
      }))
    )
}
