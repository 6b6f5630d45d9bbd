/**
 * The session advisory locks behind `Ownership`, as statements on one session. A lock has two keys: its kind with the group's name, and a number.
 *
 * - A *slot* lock: this session owns the slot of that number.
 * - A *member* lock: this session is a member of the group, under that number.
 * - An *unable* lock: the member of that number can't use its slots.
 *
 * Postgres frees all of them when the session ends. There is no table that could contradict the locks.
 */
import { Effect, Random } from "effect"
import type { SqlError } from "effect/sql"
import type { ControlSession } from "./ControlConnection.ts"

/** The locks of a group at one moment. Members are in ascending order, so all of them compute the same ranks. */
export interface Survey {
  readonly members: ReadonlyArray<number>
  /** The members that get slots: those that can use them, or all if none can. */
  readonly dealtTo: ReadonlyArray<number>
  readonly taken: ReadonlySet<number>
}

/**
 * The first key of the group's locks (`classid` in pg_locks): FNV-1a over the name, as a signed 32-bit number. Two groups whose names collide would
 * take each other's locks. The names are few and all ours, and a collision shows at once: slots that nobody gets.
 */
export const lockClass = (name: string): number => {
  let hash = 0x811c9dc5
  for (const byte of new TextEncoder().encode(name)) hash = Math.imul(hash ^ byte, 0x01000193)
  return hash | 0
}

// classid is unsigned in pg_locks and signed in the lock functions.
export const unsigned = (key: number) => BigInt(key >>> 0)

/** The first key of the locks on the group's slots. */
export const slotClassOf = (group: string): number => lockClass(`slot ${group}`)

/** The first key of the locks of the group's members. */
export const memberClassOf = (group: string): number => lockClass(`member ${group}`)

/** The locks of `group`. */
export const make = (group: string) => {
  const slotClass = slotClassOf(group)
  const memberClass = memberClassOf(group)
  const unableClass = lockClass(`unable ${group}`)

  /** Makes the session a member. Returns its number, which no other member has. */
  const enter = Effect.fnUntraced(function* (session: ControlSession) {
    while (true) {
      const member = yield* Random.nextIntBetween(0, 2 ** 31 - 1)
      const [row] = yield* session.query("SELECT pg_try_advisory_lock($1::int4, $2::int4) AS locked", [
        memberClass,
        member
      ])
      if (row?.["locked"] === true) return member
    }
  })

  /** Ends the membership. Its slots stay until they are unlocked. */
  const leave = (session: ControlSession, member: number, isAble: boolean): Effect.Effect<unknown, SqlError.SqlError> =>
    session.query("SELECT pg_advisory_unlock(class, $2::int4) FROM unnest($1::int4[]) AS class", [
      isAble ? [memberClass] : [memberClass, unableClass],
      member
    ])

  /** Tells the other members whether this one can use its slots. Only called when that has changed. */
  const setAble = (
    session: ControlSession,
    member: number,
    isAble: boolean
  ): Effect.Effect<unknown, SqlError.SqlError> =>
    session.query(`SELECT ${isAble ? "pg_advisory_unlock" : "pg_try_advisory_lock"}($1::int4, $2::int4)`, [
      unableClass,
      member
    ])

  const survey = (session: ControlSession): Effect.Effect<Survey, SqlError.SqlError> =>
    Effect.map(
      session.query(
        `SELECT classid::int8::text AS class, objid::int8::text AS key FROM pg_locks
         WHERE locktype = 'advisory' AND objsubid = 2 AND granted
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND classid IN ($1::int8::oid, $2::int8::oid, $3::int8::oid)`,
        [memberClass, slotClass, unableClass].map(unsigned)
      ),
      (rows) => {
        const keysOf = (lockKey: number) =>
          rows.filter((row) => row["class"] === String(unsigned(lockKey))).map((row) => Number(row["key"]))
        const members = keysOf(memberClass).toSorted((a, b) => a - b)
        const unable = new Set(keysOf(unableClass))
        const able = members.filter((member) => !unable.has(member))
        return { members, dealtTo: able.length > 0 ? able : members, taken: new Set(keysOf(slotClass)) }
      }
    )

  /** Locks those of `slots` that are free. Returns them. */
  const lock = (session: ControlSession, slots: ReadonlyArray<number>) =>
    Effect.map(
      session.query(
        // Postgres grants a session a lock that it holds already. Without the first part, two memberships of this process that reach for the
        // same slot would both have it.
        `WITH free AS MATERIALIZED (
           SELECT slot FROM unnest($2::int4[]) AS slot
           EXCEPT
           SELECT objid::int8::int4 FROM pg_locks
           WHERE locktype = 'advisory' AND objsubid = 2 AND pid = pg_backend_pid() AND classid = $3::int8::oid
         )
         SELECT slot FROM free WHERE pg_try_advisory_lock($1::int4, slot)`,
        [slotClass, slots, unsigned(slotClass)]
      ),
      (rows) => rows.map((row) => Number(row["slot"]))
    )

  const unlock = (session: ControlSession, slots: ReadonlyArray<number>): Effect.Effect<unknown, SqlError.SqlError> =>
    session.query("SELECT pg_advisory_unlock($1::int4, slot) FROM unnest($2::int4[]) AS slot", [slotClass, slots])

  return { enter, leave, setAble, survey, lock, unlock }
}
