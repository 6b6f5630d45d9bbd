/**
 * The session advisory locks that say which lanes are *watched*: their dispatcher looks at them every few milliseconds by itself (LaneWatch.ts), and
 * needs no wake-ups. Processes that write events read them now and then, and are quiet meanwhile (QuietWakeups.ts).
 *
 * Postgres frees the locks with the session of a process that dies, and there is no table that could contradict them. A reader tries a shared lock.
 */
import { Effect, SubscriptionRef } from "effect"
import type { SqlError } from "effect/sql"
import type { Lane } from "../../outbox/Lane.ts"
import type { ControlConnection, ControlSession, ControlUnavailable } from "../../platform/ControlConnection.ts"
import { lockClass } from "../../platform/OwnershipLocks.ts"

/** The first key of these locks. The second one is the lane. */
export const watchClass = lockClass("watched lane")

const unlock = "SELECT pg_advisory_unlock($1::int4, lane) FROM unnest($2::int4[]) AS lane"
const lock = "SELECT lane FROM unnest($2::int4[]) AS lane WHERE pg_try_advisory_lock($1::int4, lane)"
// They end with the statement.
const locked = "SELECT lane FROM unnest($2::int4[]) AS lane WHERE NOT pg_try_advisory_xact_lock_shared($1::int4, lane)"

/** From the beginning of its reading on, a process sends no wake-up of a watched lane for this long. Dispatchers look on for longer than that. */
export const quietMillis = 250

const lanesOf = (rows: ReadonlyArray<{ readonly [column: string]: unknown }>) => rows.map(({ lane }) => lane as Lane)

/** Which of the lanes another session watches. */
export const read = (
  control: ControlConnection["Service"],
  lanes: ReadonlyArray<Lane>
): Effect.Effect<ReadonlyArray<Lane>, ControlUnavailable> =>
  Effect.map(control.query(locked, [watchClass, lanes]), lanesOf)

/**
 * Replaces the lanes that this process watches. Leaves out lanes that another session has locked, or is reading at that moment. Without a session it
 * does nothing. So it is to be repeated now and then. Fails with the session.
 */
export const make = (control: ControlConnection["Service"]) => {
  let last: { readonly session: number; readonly lanes: ReadonlySet<Lane> } | undefined
  const replace = Effect.fnUntraced(function* (session: ControlSession, wanted: ReadonlySet<Lane>) {
    const held = last?.session === session.id ? last.lanes : new Set<Lane>()
    const others = [...held].filter((lane) => !wanted.has(lane))
    const missing = [...wanted].filter((lane) => !held.has(lane))
    if (others.length > 0) yield* session.query(unlock, [watchClass, others])
    const got = missing.length === 0 ? [] : lanesOf(yield* session.query(lock, [watchClass, missing]))
    last = { session: session.id, lanes: new Set([...got, ...[...held].filter((lane) => wanted.has(lane))]) }
  }, Effect.uninterruptible)
  return (lanes: ReadonlyArray<Lane>): Effect.Effect<void, SqlError.SqlError> =>
    Effect.flatMap(SubscriptionRef.get(control.session), (session) =>
      session === undefined ? Effect.void : replace(session, new Set(lanes))
    )
}
