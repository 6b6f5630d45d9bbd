/** The log of an effect, as lines. */
import { Effect, Logger, References } from "effect"

/** Runs the effect, and returns what it logged from level Info on: each line as its level and its message. */
export const linesOf = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<ReadonlyArray<string>, E, R> =>
  Effect.suspend(() => {
    const lines: Array<string> = []
    const logger = Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${String(message)}`))
    return Effect.as(
      Effect.provide(Effect.provideService(effect, References.MinimumLogLevel, "Info"), Logger.layer([logger])),
      lines
    )
  })
