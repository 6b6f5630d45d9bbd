/**
 * Deals out numbered shares evenly among the processes that want them: the dispatcher's lanes, the embedded broker's
 * partitions. A share has at most one holder at a time, whatever dies.
 *
 * A share is a session advisory lock on the control connection, so Postgres frees it when its holder's session ends. The
 * members of a group are the sessions that hold a lock of their own on the group's roll; there is no table to go stale. Each
 * member works out its fair part from the roll alone (`count / members`, the first `count mod members` one more), gives up
 * what it has beyond, and takes free shares up to it; the parts add up to all shares, so none is left over.
 *
 * A member that says it can't use its shares, with one more lock, has no part for as long as another member can. Where none can, the shares are
 * dealt to all as ever: somebody has to hold them when it is over.
 *
 * The holder that froze or lost its session may believe for a moment longer that it holds a share. What is done under a share
 * must therefore be harmless when done twice; the lock makes it rare, and a fencing token or an order rule makes it safe.
 */
import { Context, Effect, Latch, Layer, Option, Random, type Scope, Stream, SubscriptionRef } from "effect"
import { ControlConnection, type ControlSession } from "./ControlConnection.ts"
import * as Supervised from "./Supervised.ts"
import { Wakeups } from "./Wakeups.ts"

/** This process's part of a group. */
export interface Membership {
  /** The shares that this process holds now, in ascending order. */
  readonly held: Effect.Effect<ReadonlyArray<number>>
  /**
   * Runs `effect` if `share` is held, and keeps it held meanwhile unless the session is lost: a share that has to be given up
   * is given up when the last user is done. `None` when it is not held.
   */
  readonly use: <A, E, R>(share: number, effect: Effect.Effect<A, E, R>) => Effect.Effect<Option.Option<A>, E, R>
  /** Emits the shares held, now and after each change; also where one that was to be given up, and refused its users, is kept. */
  readonly changes: Stream.Stream<ReadonlyArray<number>>
  /** Tells the others whether this process can use its shares: at first it can. What it holds then goes to those who can, if there are any. */
  readonly setAble: (isAble: boolean) => Effect.Effect<void>
}

/** How often a member looks whether others came or went without a signal (a SIGKILL sends none). */
const rebalanceMillis = 1_000

/** After others were faster at free shares the next look comes within this time: several turns in a tenth of a second. */
const lookAgainMillis = 40

export class Ownership extends Context.Service<
  Ownership,
  {
    /**
     * Joins `group`, whose members divide the shares `0 … count - 1`, until the scope closes: then waits for the users of what
     * it holds, and leaves. Members of one group must agree on `count`.
     */
    readonly join: (group: string, count: number) => Effect.Effect<Membership, never, Scope.Scope>
  }
>()("paid-once/platform/Ownership") {
  static readonly layer: Layer.Layer<Ownership, never, ControlConnection | Wakeups | Supervised.Fibers> = Layer.effect(
    Ownership,
    Effect.gen(function* () {
      const control = yield* ControlConnection
      const wakeups = yield* Wakeups
      const fibers = yield* Supervised.Fibers
      return Ownership.of({
        join: (group, count) =>
          join({ control, wakeups, group, count }).pipe(Effect.provideService(Supervised.Fibers, fibers))
      })
    })
  )
}

/**
 * The first key of the group's locks (`classid` in pg_locks): FNV-1a over the name, as a signed 32-bit number. Two groups whose
 * names collide would share locks; the names are few and ours, and a collision shows at once as shares that nobody gets.
 */
export const lockClass = (name: string): number => {
  let hash = 0x811c9dc5
  for (const byte of new TextEncoder().encode(name)) hash = Math.imul(hash ^ byte, 0x01000193)
  return hash | 0
}

/** The fair part of the member with this rank: the parts of all ranks add up to `count`. */
export const fairPart = (count: number, members: number, rank: number): number =>
  Math.floor(count / members) + (rank < count % members ? 1 : 0)

const subject = "shares"

// classid is unsigned in pg_locks and signed in the lock functions.
const unsigned = (key: number) => key >>> 0

const join = Effect.fnUntraced(function* ({
  control,
  count,
  group,
  wakeups
}: {
  readonly control: ControlConnection["Service"]
  readonly wakeups: Wakeups["Service"]
  readonly group: string
  readonly count: number
}) {
  const shareClass = lockClass(`share ${group}`)
  const rollClass = lockClass(`roll ${group}`)
  const unableClass = lockClass(`unable ${group}`)
  const held = yield* SubscriptionRef.make<ReadonlySet<number>>(new Set())
  /** Users of each share in this process; a share with users is not given up. */
  const users = new Map<number, number>()
  /** Shares that are to be given up: no new user gets in. */
  const leaving = new Set<number>()
  const wake = yield* Latch.make(true)
  /** Until the next look, unless somebody wakes us. */
  let nextLookMillis = rebalanceMillis
  /** The session and the member number under which this process stands on the roll, and what it has said there. */
  let enrolled: { readonly session: number; readonly member: number; readonly isAble: boolean } | undefined
  let isAble = true

  const changed = wakeups.send(subject, [group])

  /** Puts this process on the roll of a new session, with a number that nobody else there has. */
  const enrol = Effect.fnUntraced(function* (session: ControlSession) {
    if (enrolled?.session === session.id) return enrolled.member
    while (true) {
      const member = yield* Random.nextIntBetween(0, 2 ** 31 - 1)
      const [row] = yield* session.query("SELECT pg_try_advisory_lock($1::int4, $2::int4) AS locked", [
        rollClass,
        member
      ])
      if (row?.["locked"] === true) {
        enrolled = { session: session.id, member, isAble: true }
        return member
      }
    }
  })

  /** Says on the roll whether this process can use its shares. */
  const declare = Effect.fnUntraced(function* (session: ControlSession, member: number) {
    if (enrolled === undefined || enrolled.isAble === isAble) return
    const says = isAble
    yield* session.query(`SELECT ${says ? "pg_advisory_unlock" : "pg_try_advisory_lock"}($1::int4, $2::int4)`, [
      unableClass,
      member
    ])
    // The session may have ended since it answered, and this lock with it.
    enrolled = enrolled?.session === session.id ? { ...enrolled, isAble: says } : enrolled
    yield* changed
  })

  /** Everyone's locks of this group: who is on the roll, who of them can't use shares, and which shares are taken. */
  const survey = (session: ControlSession) =>
    Effect.map(
      session.query(
        `SELECT classid::int8::text AS class, objid::int8::text AS key FROM pg_locks
         WHERE locktype = 'advisory' AND objsubid = 2 AND granted
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND classid IN ($1::int8::oid, $2::int8::oid, $3::int8::oid)`,
        [rollClass, shareClass, unableClass].map((key) => BigInt(unsigned(key)))
      ),
      (rows) => {
        const keysOf = (lockKey: number) =>
          rows.filter((row) => row["class"] === String(unsigned(lockKey))).map((row) => Number(row["key"]))
        const roll = keysOf(rollClass).toSorted((a, b) => a - b)
        const unable = new Set(keysOf(unableClass))
        const able = roll.filter((member) => !unable.has(member))
        return { roll, dealtTo: able.length > 0 ? able : roll, taken: new Set(keysOf(shareClass)) }
      }
    )

  const release = Effect.fnUntraced(function* (session: ControlSession, shares: ReadonlyArray<number>) {
    if (shares.length === 0) return
    yield* SubscriptionRef.update(held, (current) => new Set([...current].filter((share) => !shares.includes(share))))
    for (const share of shares) leaving.delete(share)
    yield* session.query("SELECT pg_advisory_unlock($1::int4, share) FROM unnest($2::int4[]) AS share", [
      shareClass,
      shares
    ])
    yield* changed
  })

  const acquire = Effect.fnUntraced(function* (session: ControlSession, shares: ReadonlyArray<number>) {
    if (shares.length === 0) return 0
    const rows = yield* session.query(
      // A session gets a lock that it holds already a second time: without the first part, two memberships of this process
      // that reach for the same share would both have it.
      `WITH free AS MATERIALIZED (
         SELECT share FROM unnest($2::int4[]) AS share
         EXCEPT
         SELECT objid::int8::int4 FROM pg_locks
         WHERE locktype = 'advisory' AND objsubid = 2 AND pid = pg_backend_pid() AND classid = $3::int8::oid
       )
       SELECT share FROM free WHERE pg_try_advisory_lock($1::int4, share)`,
      [shareClass, shares, BigInt(unsigned(shareClass))]
    )
    const got = rows.map((row) => Number(row["share"]))
    // The session may have ended since it answered, and these locks with it.
    if (got.length > 0) {
      yield* SubscriptionRef.update(held, (current) =>
        enrolled?.session === session.id ? new Set([...current, ...got]) : current
      )
    }
    return got.length
  })

  /**
   * Moves this process's part one step towards fair. Uninterruptible: a lock that was granted to an interrupted query would be
   * nobody's for as long as the session lives. The heartbeat bounds it: a session that does not answer is closed.
   */
  const rebalance = Effect.gen(function* () {
    nextLookMillis = rebalanceMillis
    const session = yield* SubscriptionRef.get(control.session)
    if (session === undefined) return
    const isNew = enrolled?.session !== session.id
    const member = yield* enrol(session)
    yield* declare(session, member)
    // Not before it: who can't use shares would be given some for a moment.
    if (isNew) yield* changed
    const { dealtTo, roll, taken } = yield* survey(session)
    const mine = [...(yield* SubscriptionRef.get(held))].toSorted((a, b) => a - b)
    // Not on the roll: the session ended in between. The next session begins anew.
    if (!roll.includes(member)) return
    const rank = dealtTo.indexOf(member)
    const target = rank < 0 ? 0 : fairPart(count, dealtTo.length, rank)
    const wereLeaving = [...leaving]
    leaving.clear()
    if (mine.length > target) {
      for (const share of mine.slice(target)) leaving.add(share)
      yield* release(
        session,
        [...leaving].filter((share) => (users.get(share) ?? 0) === 0)
      )
    } else if (mine.length < target) {
      const free = Array.from({ length: count }, (_, share) => share).filter((share) => !taken.has(share))
      // Each member starts its search elsewhere, so that they don't all reach for the same free share.
      const first = Math.floor((rank * free.length) / dealtTo.length)
      const wanted = [...free.slice(first), ...free.slice(0, first)].slice(0, target - mine.length)
      const got = yield* acquire(session, wanted)
      if (got < wanted.length) nextLookMillis = yield* Random.nextBetween(0, lookAgainMillis)
    }
    // They stay, and users were turned away from them meanwhile: whoever watches the shares looks at them once more.
    if (wereLeaving.some((share) => mine.includes(share) && !leaving.has(share))) {
      yield* SubscriptionRef.update(held, (current) => new Set(current))
    }
  }).pipe(Effect.uninterruptible)

  // A lost session has lost every lock: nothing is held from that moment on, and the next session starts from nothing.
  yield* SubscriptionRef.changes(control.session).pipe(
    Stream.runForEach(() =>
      Effect.suspend(() => {
        // What counts is the session of now: this change may be an old one, with a later session in use already.
        if (SubscriptionRef.getUnsafe(control.session)?.id === enrolled?.session) return Effect.void
        enrolled = undefined
        leaving.clear()
        return Effect.andThen(SubscriptionRef.set(held, new Set<number>()), wake.open)
      })
    ),
    Effect.forkScoped
  )
  yield* wakeups.on(subject, (detail) => (detail === group ? Effect.asVoid(wake.open) : Effect.void))

  // Registered before the loop, so it runs after the loop has ended: the last one out turns off the light.
  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      const session = yield* SubscriptionRef.get(control.session)
      if (session === undefined || enrolled?.session !== session.id) return
      for (const share of yield* SubscriptionRef.get(held)) leaving.add(share)
      // Off the roll first: from now on the others divide all shares among themselves, and each goes when its last user does.
      const { isAble: wasAble, member } = enrolled
      yield* session.query("SELECT pg_advisory_unlock(class, $2::int4) FROM unnest($1::int4[]) AS class", [
        wasAble ? [rollClass] : [rollClass, unableClass],
        member
      ])
      yield* changed
      while (true) {
        yield* release(
          session,
          [...(yield* SubscriptionRef.get(held))].filter((share) => (users.get(share) ?? 0) === 0)
        )
        if ((yield* SubscriptionRef.get(held)).size === 0) return
        yield* wake.await
        yield* wake.close
      }
    }).pipe(Effect.ignore)
  )

  yield* Supervised.forkLoop(
    `shares of ${group}`,
    Effect.suspend(() => Effect.timeoutOption(wake.await, nextLookMillis)).pipe(
      Effect.andThen(wake.close),
      Effect.andThen(rebalance)
    )
  )

  let last: { readonly shares: ReadonlySet<number>; readonly sorted: ReadonlyArray<number> } | undefined
  /** The same array as long as the set is the same: it is asked for at each wake-up. */
  const sorted = (shares: ReadonlySet<number>): ReadonlyArray<number> => {
    if (last?.shares !== shares) last = { shares, sorted: [...shares].toSorted((a, b) => a - b) }
    return last.sorted
  }
  const membership: Membership = {
    held: Effect.map(SubscriptionRef.get(held), sorted),
    changes: Stream.map(SubscriptionRef.changes(held), sorted),
    setAble: (now) =>
      Effect.suspend(() => {
        isAble = now
        return Effect.asVoid(wake.open)
      }),
    use: (share, effect) =>
      Effect.acquireUseRelease(
        Effect.map(SubscriptionRef.get(held), (shares) => {
          if (!shares.has(share) || leaving.has(share)) return false
          users.set(share, (users.get(share) ?? 0) + 1)
          return true
        }),
        (granted) => (granted ? Effect.asSome(effect) : Effect.succeedNone),
        (granted) =>
          Effect.suspend(() => {
            if (!granted) return Effect.void
            users.set(share, (users.get(share) ?? 1) - 1)
            return leaving.has(share) ? Effect.asVoid(wake.open) : Effect.void
          })
      )
  }
  return membership
})
