/**
 * The faults that the sandbox gateway is told to show: `PUT /behaviour`. They are stored, so that a restarted gateway continues with them.
 */
import { Clock, Context, Effect, Layer, Ref, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { type Command, State } from "../http/admin/GatewayBehaviour.ts"
import * as Rows from "../platform/Rows.ts"

/** Late enough to be noticed, and well below a client's timeout. */
const defaultDelayMillis = 2_000

const normal: State = {
  mode: "normal",
  delayMillis: defaultDelayMillis,
  timesLeft: null,
  untilMillis: null,
  webhooks: "once"
}

const firstStored = Rows.first(Schema.Struct({ state: State }))

export class Behaviour extends Context.Service<
  Behaviour,
  {
    readonly set: (command: Command) => Effect.Effect<State, SqlError.SqlError>
    readonly get: Effect.Effect<State>
    /** The fault of the present request, which is counted. */
    readonly take: Effect.Effect<Pick<State, "mode" | "delayMillis">, SqlError.SqlError>
  }
>()("paid-once/sandbox/Behaviour") {
  static readonly layer: Layer.Layer<Behaviour, SqlError.SqlError, SqlClient.SqlClient> = Layer.effect(
    Behaviour,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const stored = yield* firstStored(sql`SELECT state FROM sandbox_gateway.behaviour`)
      const current = yield* Ref.make(stored?.state ?? normal)
      const store = (state: State) => sql`
        INSERT INTO sandbox_gateway.behaviour (state) VALUES (${JSON.stringify(state)}::text::jsonb)
        ON CONFLICT (the_one) DO UPDATE SET state = excluded.state`

      return Behaviour.of({
        get: Ref.get(current),
        set: Effect.fnUntraced(function* (command) {
          const { durationMillis, times, ...rest } = command
          const state: State = {
            ...normal,
            ...rest,
            timesLeft: times ?? null,
            untilMillis: durationMillis === undefined ? null : (yield* Clock.currentTimeMillis) + durationMillis
          }
          yield* Ref.set(current, state)
          yield* store(state)
          return state
        }),
        take: Effect.gen(function* () {
          const state = yield* Ref.get(current)
          if (state.mode === "normal") return state
          const isOver = state.untilMillis !== null && (yield* Clock.currentTimeMillis) >= state.untilMillis
          if (isOver) {
            yield* Ref.set(current, { ...normal, webhooks: state.webhooks })
            return normal
          }
          if (state.timesLeft === null) return state
          const left = state.timesLeft - 1
          const next: State = left > 0 ? { ...state, timesLeft: left } : { ...normal, webhooks: state.webhooks }
          yield* Ref.set(current, next)
          yield* store(next)
          return state
        })
      })
    })
  )
}
