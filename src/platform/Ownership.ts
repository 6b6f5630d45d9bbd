/**
 * Divides numbered slots evenly among the processes that want them: the dispatcher's lanes, the embedded broker's partitions. A slot has at most
 * one owner at a time, whatever dies.
 *
 * A slot is owned through a session advisory lock on the control connection, so Postgres frees it when its owner's session ends. The members of a
 * group are sessions that hold a lock, too; there is no table that could be out of date. Each member computes its fair part from the members alone
 * (`count / members`, the first `count mod members` one more), gives up the slots beyond it, and takes free ones up to it. The parts add up to
 * all slots, so none is left over.
 *
 * A member that says it can't use its slots gets none for as long as another member can. If no member can, all of them
 * divide the slots: each slot needs an owner at the moment when it can be used again.
 *
 * An owner that was frozen, or has lost its session, may believe for a moment longer that a slot is its own. Work under a slot must therefore be
 * harmless when it is done twice: ownership makes that rare, and a fencing token or an order rule makes it safe.
 */
import { Context, Effect, Latch, Layer, Option, Random, type Scope, Stream, SubscriptionRef } from "effect"
import { ControlConnection, type ControlSession } from "./ControlConnection.ts"
import * as OwnershipLocks from "./OwnershipLocks.ts"
import * as Supervised from "./Supervised.ts"
import { Wakeups } from "./Wakeups.ts"

/** This process as a member of a group. */
export interface Membership {
  /** The slots that this process owns now, in ascending order. */
  readonly held: Effect.Effect<ReadonlyArray<number>>
  /**
   * Runs `effect` if this process owns `slot`, and keeps it until `effect` has ended, unless the session is lost. A slot that has to be given up
   * takes no new users, and goes when its last one has ended. `None` when the slot is not owned, or is being given up.
   */
  readonly use: <A, E, R>(slot: number, effect: Effect.Effect<A, E, R>) => Effect.Effect<Option.Option<A>, E, R>
  /** Whether the slot is owned now. */
  readonly holds: (slot: number) => boolean
  /** As {@link use}, for what begins in one fiber and ends in another: true where it may begin, and then {@link leave} is to follow. */
  readonly enter: (slot: number) => boolean
  readonly leave: (slot: number) => void
  /** Emits the slots owned, now and after each change; also when a slot that was being given up, and refused its users, stays. */
  readonly changes: Stream.Stream<ReadonlyArray<number>>
  /** Says whether this process can use its slots; it can at first. While it can't, its slots go to members that can, if there are any. */
  readonly setAble: (isAble: boolean) => Effect.Effect<void>
}

/** How often a member looks at the others: one that was killed wakes nobody. */
const rebalanceMillis = 1_000

/** A member that lost free slots to faster ones looks again within this time: several rounds fit into a tenth of a second. */
const lookAgainMillis = 40

export class Ownership extends Context.Service<
  Ownership,
  {
    /**
     * Joins `group`, whose members divide the slots `0 … count - 1`, until the scope closes: then waits for the users of its slots, and leaves.
     * The members of one group must agree on `count`.
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

/** The number of slots for the member of this rank. Over all ranks they add up to `count`. */
export const fairPart = (count: number, members: number, rank: number): number =>
  Math.floor(count / members) + (rank < count % members ? 1 : 0)

const subject = "ownership"

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
  const locks = OwnershipLocks.make(group)
  const held = yield* SubscriptionRef.make<ReadonlySet<number>>(new Set())
  /** The number of users of each slot in this process. */
  const users = new Map<number, number>()
  /** Slots that are to be given up: they take no new users. */
  const leaving = new Set<number>()
  const wake = yield* Latch.make(true)
  /** The wait until the next look, unless a wake-up comes before. */
  let nextLookMillis = rebalanceMillis
  /** The session through which this process is a member, its number there, and what it has told the others. */
  let enrolled: { readonly session: number; readonly member: number; readonly isAble: boolean } | undefined
  let isAble = true

  const wakeOthers = wakeups.send(subject, [group])
  const idle = (slots: Iterable<number>) => [...slots].filter((slot) => (users.get(slot) ?? 0) === 0)

  const enrol = Effect.fnUntraced(function* (session: ControlSession) {
    if (enrolled?.session === session.id) return enrolled.member
    const member = yield* locks.enter(session)
    enrolled = { session: session.id, member, isAble: true }
    return member
  })

  const tellAble = Effect.fnUntraced(function* (session: ControlSession, member: number) {
    if (enrolled === undefined || enrolled.isAble === isAble) return
    const told = isAble
    yield* locks.setAble(session, member, told)
    // The session may have ended since it answered, and this lock with it.
    enrolled = enrolled?.session === session.id ? { ...enrolled, isAble: told } : enrolled
    yield* wakeOthers
  })

  const release = Effect.fnUntraced(function* (session: ControlSession, slots: ReadonlyArray<number>) {
    if (slots.length === 0) return
    yield* SubscriptionRef.update(held, (current) => new Set([...current].filter((slot) => !slots.includes(slot))))
    for (const slot of slots) leaving.delete(slot)
    yield* locks.unlock(session, slots)
    yield* wakeOthers
  })

  const acquire = Effect.fnUntraced(function* (session: ControlSession, slots: ReadonlyArray<number>) {
    if (slots.length === 0) return 0
    const got = yield* locks.lock(session, slots)
    // The session may have ended since it answered, and these locks with it.
    if (got.length > 0) {
      yield* SubscriptionRef.update(held, (current) =>
        enrolled?.session === session.id ? new Set([...current, ...got]) : current
      )
    }
    return got.length
  })

  /**
   * Moves this process one step towards its fair part. Uninterruptible: a lock that was granted to an interrupted query would be nobody's for as
   * long as the session lives. The heartbeat bounds it, for a session that does not answer is closed.
   */
  const rebalance = Effect.gen(function* () {
    nextLookMillis = rebalanceMillis
    const session = yield* SubscriptionRef.get(control.session)
    if (session === undefined) return
    const isNew = enrolled?.session !== session.id
    const member = yield* enrol(session)
    yield* tellAble(session, member)
    // Not before the others can read whether this member is able: else they would leave slots to one that can't use them.
    if (isNew) yield* wakeOthers
    const { dealtTo, members, taken } = yield* locks.survey(session)
    const mine = [...(yield* SubscriptionRef.get(held))].toSorted((a, b) => a - b)
    // No longer a member: the session has ended meanwhile, and the next one begins anew.
    if (!members.includes(member)) return
    const rank = dealtTo.indexOf(member)
    const target = rank < 0 ? 0 : fairPart(count, dealtTo.length, rank)
    const wereLeaving = [...leaving]
    leaving.clear()
    if (mine.length > target) {
      for (const slot of mine.slice(target)) leaving.add(slot)
      yield* release(session, idle(leaving))
    } else if (mine.length < target) {
      const free = Array.from({ length: count }, (_, slot) => slot).filter((slot) => !taken.has(slot))
      // Each member begins its search elsewhere, so that they don't all reach for the same free slot.
      const first = Math.floor((rank * free.length) / dealtTo.length)
      const wanted = [...free.slice(first), ...free.slice(0, first)].slice(0, target - mine.length)
      const got = yield* acquire(session, wanted)
      if (got < wanted.length) nextLookMillis = yield* Random.nextBetween(0, lookAgainMillis)
    }
    // These slots stay, and have refused users meanwhile: the watchers of `changes` try them again.
    if (wereLeaving.some((slot) => mine.includes(slot) && !leaving.has(slot))) {
      yield* SubscriptionRef.update(held, (current) => new Set(current))
    }
  }).pipe(Effect.uninterruptible)

  // With its session a member has lost all locks: it owns nothing from that moment on, and the next session begins with nothing.
  yield* SubscriptionRef.changes(control.session).pipe(
    Stream.runForEach(() =>
      Effect.suspend(() => {
        // The present session counts: this change may be an old one, with a later session in use already.
        if (SubscriptionRef.getUnsafe(control.session)?.id === enrolled?.session) return Effect.void
        enrolled = undefined
        leaving.clear()
        return Effect.andThen(SubscriptionRef.set(held, new Set<number>()), wake.open)
      })
    ),
    Effect.forkScoped
  )
  yield* wakeups.on(subject, (detail) => void (detail === group && wake.openUnsafe()))

  // Registered before the loop, and so run after the loop has ended.
  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      const session = yield* SubscriptionRef.get(control.session)
      if (session === undefined || enrolled?.session !== session.id) return
      for (const slot of yield* SubscriptionRef.get(held)) leaving.add(slot)
      // No member from now on: the others divide all slots among themselves, and get each of these when its last user has ended.
      yield* locks.leave(session, enrolled.member, enrolled.isAble)
      yield* wakeOthers
      while (true) {
        yield* release(session, idle(yield* SubscriptionRef.get(held)))
        if ((yield* SubscriptionRef.get(held)).size === 0) return
        yield* wake.await
        yield* wake.close
      }
    }).pipe(Effect.ignore)
  )

  yield* Supervised.forkLoop(
    `ownership of ${group}`,
    Effect.suspend(() => Effect.timeoutOption(wake.await, nextLookMillis)).pipe(
      Effect.andThen(wake.close),
      Effect.andThen(rebalance)
    )
  )

  let last: { readonly slots: ReadonlySet<number>; readonly sorted: ReadonlyArray<number> } | undefined
  /** The same array as long as the set is the same: callers ask at each wake-up. */
  const sorted = (slots: ReadonlySet<number>): ReadonlyArray<number> => {
    if (last?.slots !== slots) last = { slots, sorted: [...slots].toSorted((a, b) => a - b) }
    return last.sorted
  }
  const enter = (slot: number) => {
    if (!SubscriptionRef.getUnsafe(held).has(slot) || leaving.has(slot)) return false
    users.set(slot, (users.get(slot) ?? 0) + 1)
    return true
  }
  const leave = (slot: number) => {
    users.set(slot, (users.get(slot) ?? 1) - 1)
    if (leaving.has(slot)) wake.openUnsafe()
  }
  const membership: Membership = {
    held: Effect.map(SubscriptionRef.get(held), sorted),
    changes: Stream.map(SubscriptionRef.changes(held), sorted),
    setAble: (now) =>
      Effect.suspend(() => {
        isAble = now
        return Effect.asVoid(wake.open)
      }),
    use: (slot, effect) =>
      Effect.acquireUseRelease(
        Effect.sync(() => enter(slot)),
        (granted) => (granted ? Effect.asSome(effect) : Effect.succeedNone),
        (granted) => Effect.sync(() => (granted ? leave(slot) : undefined))
      ),
    holds: (slot) => SubscriptionRef.getUnsafe(held).has(slot),
    enter,
    leave
  }
  return membership
})
