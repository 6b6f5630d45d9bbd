/**
 * Takes the demo's broker away, and brings it back. The embedded broker is four tables, so the database's owner gives them other names: each
 * statement on them fails, and the service sees `BrokerUnavailable` as with any broker that is down. Nothing of the service knows of it, and a process
 * that starts meanwhile does not mend it.
 */
import { Effect, Layer, type Redacted } from "effect"
import { Problem } from "../../http/Problems.ts"
import { settingsOf } from "../../main/Storage.ts"
import * as Database from "../../postgres/Database.ts"
import * as Breakages from "../drill/Breakages.ts"
import { unknown } from "./Children.ts"

/** The demo's broker, until the scope closes. `tell` says what happens to it. */
export const make = Effect.fnUntraced(function* (
  ownerUrl: Redacted.Redacted,
  tell: (what: string) => Effect.Effect<void>
) {
  const database = yield* Layer.build(Database.layer.pipe(Layer.provide(settingsOf(ownerUrl, { maxConnections: 1 }))))
  let isAway = false

  return {
    isAway: () => isAway,
    /** Does it, once. */
    act: (action: string): Effect.Effect<void, Problem> => {
      if (action !== "take-away" && action !== "bring-back")
        return unknown("action", action, ["take-away", "bring-back"])
      const wanted = action === "take-away"
      const { isBroken } = Breakages.broker
      return Effect.gen(function* () {
        // A drill in a shell mends what it finds broken.
        const isDone = wanted === (yield* isBroken)
        if (!isDone) yield* wanted ? Breakages.broker.break : Breakages.broker.mend
        isAway = wanted
        if (!isDone) yield* tell(wanted ? "The broker is taken away" : "The broker is back")
      }).pipe(
        Effect.mapError(
          ({ message }) => new Problem({ status: 503, detail: `the broker's tables are in use: ${message}` })
        ),
        Effect.provideContext(database)
      )
    }
  }
})
