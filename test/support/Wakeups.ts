/** The wake-ups that a process sends, each with the part of the change that another session could see when it was sent. */
import { Clock, Context, Duration, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Wakeups } from "../../src/platform/Wakeups.ts"

/**
 * Records each wake-up of these subjects as `subject detail: visible rows`. `visible` runs outside of the sender's transaction: a wake-up
 * that is sent before the commit would make its receiver read the old state.
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
  const { send } = signals
  // A listener is plain code, which can't ask the database. The sender waits for the answer here.
  Object.assign(signals, {
    send: (subject: string, details: ReadonlyArray<string>) =>
      Effect.andThen(
        subjects.includes(subject)
          ? Effect.forEach(details, (detail) =>
              Effect.map(look, (seen) => void heard.push(`${subject} ${detail}: ${seen}`))
            )
          : Effect.void,
        send(subject, details)
      )
  } satisfies Partial<Wakeups["Service"]>)
  yield* Effect.addFinalizer(() => Effect.sync(() => Object.assign(signals, { send })))
  /** The wake-ups since the last call. */
  return Effect.sync(() => heard.splice(0))
})

/** Waits for a network or a retry are shorter in these tests; polls that no setting changes are longer. */
const shortestPollMillis = 5_000

/** A clock on which no poll runs: layers over it depend on wake-ups alone. */
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
