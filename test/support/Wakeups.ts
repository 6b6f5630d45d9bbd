/** The signals that a process sends, each with what another session could see of the change when it was sent. */
import { Clock, Context, Duration, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Wakeups } from "../../src/platform/Wakeups.ts"

/**
 * Notes each signal of these subjects as `subject detail: what is visible`. `visible` runs outside of the sender's transaction: a wake-up that is
 * sent before the commit makes its receiver look at the state before the change.
 */
export const listen = Effect.fnUntraced(function* <E>(
  subjects: ReadonlyArray<string>,
  visible: Effect.Effect<string, E, SqlClient.SqlClient>
) {
  const signals = yield* Wakeups
  const sql = yield* SqlClient.SqlClient
  const heard: Array<string> = []
  const look = Effect.orDie(Effect.provideService(visible, SqlClient.SqlClient, sql)).pipe(
    Effect.updateContext((context: Context.Context<never>) => Context.omit(sql.transactionService)(context))
  )
  for (const subject of subjects) {
    yield* signals.on(subject, (detail) => Effect.map(look, (seen) => void heard.push(`${subject} ${detail}: ${seen}`)))
  }
  /** What was heard since the last time. Signals to the own process are delivered before `send` returns. */
  return Effect.sync(() => heard.splice(0))
})

/** No wait of ours for a network or a retry is as long in these tests; every poll that no setting reaches is. */
const shortestPollMillis = 5_000

/** A clock on which polls never come: what is built over it goes on by wake-ups alone. */
export const withoutPolls = Layer.effect(
  Clock.Clock,
  Clock.clockWith((clock) => {
    const changed: Clock.Clock = Object.assign(Object.create(clock), {
      sleep: (duration: Duration.Duration) =>
        Duration.toMillis(duration) < shortestPollMillis ? clock.sleep(duration) : Effect.never
    })
    return Effect.succeed(changed)
  })
)
