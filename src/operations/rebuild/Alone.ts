/** Work that runs once at a time, over all processes: under a session advisory lock. Postgres frees it when the session ends. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Option, Schedule } from "effect"
import type { SqlError } from "effect/sql"

/** A killed process's session ends as soon as Postgres notices: within a statement of its, as a rule. */
const patience = Schedule.spaced("100 millis").pipe(Schedule.upTo({ times: 30 }))

/** The lock's connection is silent for less time than a pool's connection may be (Database.ts). */
const heartbeat = "5 seconds"

/** Three heartbeats. Then the process is frozen, or its machine is gone: Postgres ends the session, and another process may have the lock. */
const frozen = "15s"

/**
 * Runs `work` while this process has the lock of that name, and interrupts it where the lock's session is lost. None where another process keeps the lock
 * for a few seconds.
 */
export const run = <A, E, R>(
  name: string,
  work: Effect.Effect<A, E, R>
): Effect.Effect<Option.Option<A>, E | SqlError.SqlError, R | PgClient.PgClient> =>
  Effect.scoped(
    Effect.gen(function* () {
      const client = yield* PgClient.PgClient
      const session = yield* client.reserve
      const ask = (statement: string) =>
        Effect.map(
          session.execute(`SELECT ${statement}(hashtext('alone'), hashtext($1)) AS yes`, [name], undefined),
          ([row]) => row?.["yes"] === true
        )
      const isOurs = yield* Effect.repeat(ask("pg_try_advisory_lock"), { until: (yes) => yes, schedule: patience })
      if (!isOurs) return Option.none()
      yield* Effect.addFinalizer(() => Effect.ignore(ask("pg_advisory_unlock")))
      yield* session.execute(`SET idle_session_timeout = '${frozen}'`, [], undefined)
      // In its pool the connection may be idle.
      yield* Effect.addFinalizer(() => Effect.ignore(session.execute("RESET idle_session_timeout", [], undefined)))
      const beat = Effect.forever(
        Effect.andThen(Effect.sleep(heartbeat), session.execute("SELECT 1 AS one", [], undefined))
      )
      return Option.some(yield* Effect.raceFirst(work, beat))
    })
  )
