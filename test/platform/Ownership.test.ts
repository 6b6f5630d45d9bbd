import { PgClient } from "@effect/sql-pg"
import { assert, describe, it, layer } from "@effect/vitest"
import {
  Context,
  Deferred,
  Effect,
  Exit,
  Fiber,
  Layer,
  Option,
  Random,
  References,
  Schedule,
  Scope,
  Stream,
  SubscriptionRef
} from "effect"
import { randomUUID } from "node:crypto"
import { ControlConnection } from "../../src/platform/ControlConnection.ts"
import { fairPart, type Membership, Ownership } from "../../src/platform/Ownership.ts"
import { lockClass } from "../../src/platform/OwnershipLocks.ts"
import * as EmbeddedMember from "../brokers/embedded/EmbeddedMember.ts"
import { within } from "../contracts/BrokerHarness.ts"
import * as ShortWaits from "../support/ShortWaits.ts"
import * as TcpProxy from "../support/TcpProxy.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

describe("fairPart", () => {
  it("the parts of all members add up to all slots, and differ by one at most", () => {
    for (let count = 0; count <= 130; count++) {
      for (let members = 1; members <= 12; members++) {
        const parts = Array.from({ length: members }, (_, rank) => fairPart(count, members, rank))
        assert.strictEqual(
          parts.reduce((sum, part) => sum + part, 0),
          count
        )
        assert.isAtMost(Math.max(...parts) - Math.min(...parts), 1)
      }
    }
  })
})

const count = 64

/** A process that can join groups. Its timeout is long, so that a machine that stands still for a moment costs it no session. */
const makeProcessWith = Effect.fnUntraced(function* (sessionTimeoutMillis: number) {
  const { url } = yield* TestDatabase
  const { proxy, url: proxiedUrl } = yield* TcpProxy.makePostgres(url)
  const platform = EmbeddedMember.platform(proxiedUrl, { sessionTimeoutMillis, heartbeatMillis: 200 })
  const context = yield* Layer.build(Layer.fresh(platform))
  return { proxy, ownership: Context.get(context, Ownership), control: Context.get(context, ControlConnection) }
})
const makeProcess = makeProcessWith(60_000)

/** A member that can leave before the test ends. */
const joinGroup = Effect.fnUntraced(function* (process: Effect.Success<typeof makeProcess>, group: string) {
  const scope = yield* Scope.fork(yield* Effect.scope)
  const membership = yield* Scope.provide(process.ownership.join(group, count), scope)
  return { ...process, membership, leave: Scope.close(scope, Exit.void) }
})

type Member = Effect.Success<ReturnType<typeof joinGroup>>

const heldBy = (members: ReadonlyArray<Member>) => Effect.forEach(members, ({ membership }) => membership.held)

/** Waits until these members own that many slots each, all slots together, and none twice. */
const divided = (members: ReadonlyArray<Member>, parts: ReadonlyArray<number>) =>
  within(
    `a division into ${parts.join(", ")}`,
    Effect.repeat(heldBy(members), {
      schedule: Schedule.spaced("10 millis"),
      until: (held) =>
        new Set(held.flat()).size === held.flat().length &&
        held
          .map((slots) => slots.length)
          .toSorted((a, b) => b - a)
          .join() === parts.join()
    })
  )

/** Each member's slots are the locks of its session in Postgres. */
const assertLocks = Effect.fnUntraced(function* (members: ReadonlyArray<Member>, group: string) {
  const sql = yield* PgClient.PgClient
  for (const { control, membership } of members) {
    const session = yield* SubscriptionRef.get(control.session)
    const rows = yield* sql<{ readonly slot: number }>`
      SELECT objid::int8::int4 AS slot FROM pg_locks
      WHERE locktype = 'advisory' AND granted AND pid = ${session!.backendPid}
        AND classid = ${BigInt(lockClass(`slot ${group}`) >>> 0)}::int8::oid
      ORDER BY slot`
    assert.deepStrictEqual(
      yield* membership.held,
      rows.map((row) => row.slot)
    )
  }
})

/** Ends the session that holds a member's locks. */
const terminate = Effect.fnUntraced(function* ({ control }: Member) {
  const sql = yield* PgClient.PgClient
  const session = yield* SubscriptionRef.get(control.session)
  yield* sql`SELECT pg_terminate_backend(${session!.backendPid})`
  return session!.id
})

layer(TestDatabase.layerPool.pipe(Layer.provideMerge(Layer.succeed(References.MinimumLogLevel, "Fatal"))), {
  excludeTestServices: true
})("Ownership", (it) => {
  it.effect("one to four members divide all slots evenly, and take over from those that leave", () =>
    Effect.gen(function* () {
      const group = randomUUID()
      const members: Array<Member> = []
      for (const parts of [[64], [32, 32], [22, 21, 21], [16, 16, 16, 16]]) {
        members.push(yield* joinGroup(yield* makeProcess, group))
        yield* divided(members, parts)
        yield* assertLocks(members, group)
      }
      for (const parts of [[22, 21, 21], [32, 32], [64]]) {
        const leaver = members.shift()!
        yield* leaver.leave
        yield* divided(members, parts)
        yield* assertLocks(members, group)
      }
    })
  )

  it.effect("a member whose session is ended loses its slots, and comes back for its part", () =>
    Effect.gen(function* () {
      const group = randomUUID()
      const members = [yield* joinGroup(yield* makeProcess, group), yield* joinGroup(yield* makeProcess, group)]
      yield* divided(members, [32, 32])
      const [victim] = members as [Member, Member]
      const ended = yield* terminate(victim)
      yield* within(
        "a new session",
        Effect.repeat(SubscriptionRef.get(victim.control.session), {
          schedule: Schedule.spaced("10 millis"),
          until: (session) => session !== undefined && session.id !== ended
        })
      )
      yield* divided(members, [32, 32])
      yield* assertLocks(members, group)
    })
  )

  it.effect("the slots of a member that falls silent go to the others", () =>
    Effect.gen(function* () {
      const group = randomUUID()
      const silent = yield* joinGroup(yield* makeProcessWith(1_000), group)
      const other = yield* joinGroup(yield* makeProcess, group)
      yield* divided([silent, other], [32, 32])
      yield* silent.proxy.blackHole()
      yield* divided([other], [64])
      // The member notices the loss within a second. Until then it works beside the new owners.
      yield* Effect.timeout(divided([silent, other], [64, 0]), "20 seconds")
      yield* silent.proxy.pass
      yield* divided([silent, other], [32, 32])
      yield* assertLocks([silent, other], group)
    })
  )

  it.effect("the slots of a member that was killed go to the others within a second, without a wake-up", () =>
    Effect.gen(function* () {
      const group = randomUUID()
      // A killed member wakes no other. On this clock no wait above a second ends.
      const survivor = yield* ShortWaits.upTo("1 second")(Effect.flatMap(makeProcess, (one) => joinGroup(one, group)))
      const killed = yield* joinGroup(yield* makeProcess, group)
      yield* divided([survivor, killed], [32, 32])
      yield* killed.proxy.refuse
      yield* terminate(killed)
      yield* divided([survivor], [64])
      yield* assertLocks([survivor], group)
    })
  )

  it.effect("a member that can't use its slots leaves them to those that can; if none can, all keep their parts", () =>
    Effect.gen(function* () {
      const group = randomUUID()
      const [one, two, three] = [
        yield* joinGroup(yield* makeProcess, group),
        yield* joinGroup(yield* makeProcess, group),
        yield* joinGroup(yield* makeProcess, group)
      ]
      const all = [one, two, three]
      yield* divided(all, [22, 21, 21])
      yield* one.membership.setAble(false)
      yield* divided(all, [32, 32, 0])
      assert.deepStrictEqual(yield* one.membership.held, [])
      yield* two.membership.setAble(false)
      yield* divided(all, [64, 0, 0])
      assert.strictEqual((yield* three.membership.held).length, 64)
      yield* assertLocks(all, group)
      yield* three.membership.setAble(false)
      yield* divided(all, [22, 21, 21])
      // One member becomes able before the others.
      yield* one.membership.setAble(true)
      yield* divided(all, [64, 0, 0])
      assert.strictEqual((yield* one.membership.held).length, 64)
      for (const { membership } of [two, three]) yield* membership.setAble(true)
      yield* divided(all, [22, 21, 21])
      yield* assertLocks(all, group)
      // A member that leaves frees the lock by which it says that it is unable.
      yield* two.membership.setAble(false)
      yield* divided(all, [32, 32, 0])
      for (const member of [one, two, three]) yield* member.leave
      const sql = yield* PgClient.PgClient
      const left = yield* sql`
        SELECT 1 AS one FROM pg_locks
        WHERE locktype = 'advisory' AND classid = ${BigInt(lockClass(`unable ${group}`) >>> 0)}::int8::oid`
      assert.deepStrictEqual(left, [])
    })
  )

  it.effect("a member that can't use its slots says so again in a new session", () =>
    Effect.gen(function* () {
      const group = randomUUID()
      const [one, two] = [yield* joinGroup(yield* makeProcess, group), yield* joinGroup(yield* makeProcess, group)]
      yield* divided([one, two], [32, 32])
      yield* one.membership.setAble(false)
      yield* divided([one, two], [64, 0])
      const ended = yield* terminate(one)
      yield* within(
        "a new session",
        Effect.repeat(SubscriptionRef.get(one.control.session), {
          schedule: Schedule.spaced("10 millis"),
          until: (session) => session !== undefined && session.id !== ended
        })
      )
      const sql = yield* PgClient.PgClient
      const session = yield* SubscriptionRef.get(one.control.session)
      yield* within(
        "its lock",
        Effect.repeat(
          sql`
            SELECT 1 AS one FROM pg_locks
            WHERE locktype = 'advisory' AND granted AND pid = ${session!.backendPid}
              AND classid = ${BigInt(lockClass(`unable ${group}`) >>> 0)}::int8::oid`,
          { until: (rows) => rows.length > 0, schedule: Schedule.spaced("10 millis") }
        )
      )
      yield* divided([one, two], [64, 0])
      assert.deepStrictEqual(yield* one.membership.held, [])
    })
  )

  it.effect("a slot in use is kept until its user has ended, though another member waits for it", () =>
    Effect.gen(function* () {
      const group = randomUUID()
      const one = yield* joinGroup(yield* makeProcess, group)
      yield* divided([one], [64])
      const [started, goOn] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
      // Slot 63 is the last one, which a member gives up first.
      const user = yield* one.membership
        .use(63, Effect.andThen(Deferred.succeed(started, undefined), Deferred.await(goOn)))
        .pipe(Effect.forkScoped)
      yield* Deferred.await(started)
      const two = yield* joinGroup(yield* makeProcess, group)
      yield* divided([one, two], [33, 31])
      // The slot is being given up, so it takes no new users.
      assert.deepStrictEqual(yield* one.membership.use(63, Effect.void), Option.none())
      const left = yield* Effect.forkScoped(one.leave)
      yield* divided([one, two], [63, 1])
      yield* Deferred.succeed(goOn, undefined)
      assert.isTrue(Option.isSome(yield* Fiber.join(user)))
      yield* within("the leaver", Fiber.join(left))
      yield* divided([two], [64])
    })
  )

  it.effect("a member that leaves waits for the users of its slots, and takes no new ones", () =>
    Effect.gen(function* () {
      const group = randomUUID()
      const [one, two] = [yield* joinGroup(yield* makeProcess, group), yield* joinGroup(yield* makeProcess, group)]
      yield* divided([one, two], [32, 32])
      const [slot] = yield* one.membership.held
      const [started, goOn] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
      yield* one.membership
        .use(slot!, Effect.andThen(Deferred.succeed(started, undefined), Deferred.await(goOn)))
        .pipe(Effect.forkScoped)
      yield* Deferred.await(started)
      const left = yield* Effect.forkScoped(one.leave)
      // All slots but that one.
      yield* divided([one, two], [63, 1])
      assert.deepStrictEqual(yield* one.membership.use(slot!, Effect.void), Option.none())
      yield* Deferred.succeed(goOn, undefined)
      yield* within("the leaver", Fiber.join(left))
      yield* divided([two], [64])
    })
  )

  it.effect("a slot that was being given up, and refused its users, is announced again when it stays", () =>
    Effect.gen(function* () {
      const group = randomUUID()
      const { control, membership } = yield* joinGroup(yield* makeProcess, group)
      yield* within(
        "all slots",
        Effect.repeat(membership.held, {
          until: (held) => held.length === count,
          schedule: Schedule.spaced("10 millis")
        })
      )
      // No slot is given up while all slots above half are in use.
      const goOn = yield* Deferred.make<void>()
      for (let slot = count / 2; slot < count; slot++) {
        yield* Effect.forkScoped(membership.use(slot, Deferred.await(goOn)))
      }
      let announced = 0
      yield* Effect.forkScoped(Stream.runForEach(membership.changes, () => Effect.sync(() => announced++)))
      const sql = yield* PgClient.PgClient
      /** A member that takes no slots, and leaves without a wake-up. */
      const other = yield* Scope.make()
      const locks = yield* Scope.provide(sql.reserve, other)
      yield* locks.execute(`SELECT pg_advisory_lock(${lockClass(`member ${group}`)}, 5)`, [], undefined)
      yield* within(
        "its last slot to be given up",
        Effect.repeat(membership.use(count - 1, Effect.void), {
          until: Option.isNone,
          schedule: Schedule.spaced("10 millis")
        })
      )
      const before = announced
      yield* locks.execute(`SELECT pg_advisory_unlock(${lockClass(`member ${group}`)}, 5)`, [], undefined)
      yield* within(
        "it to be announced",
        Effect.repeat(
          Effect.sync(() => announced),
          { until: (now) => now > before, schedule: Schedule.spaced("10 millis") }
        )
      )
      assert.strictEqual((yield* membership.held).length, count)
      assert.isTrue(Option.isSome(yield* membership.use(count - 1, Effect.void)))
      assert.isDefined(yield* SubscriptionRef.get(control.session))
      yield* Deferred.succeed(goOn, undefined)
      yield* Scope.close(other, Exit.void)
    })
  )

  it.effect("two memberships of one process never own the same slot", () =>
    Effect.gen(function* () {
      const group = randomUUID()
      const process = yield* makeProcess
      // Concurrently: both members find all slots free, and try to lock them on one session.
      const members = yield* Effect.all([joinGroup(process, group), joinGroup(process, group)], { concurrency: 2 })
      yield* divided(members, [32, 32])
      yield* members[0].leave
      yield* divided([members[1]], [64])
      yield* assertLocks([members[1]], group)
    })
  )

  it.effect("no slot has users of two members at any time, while members come and go", () =>
    Effect.gen(function* () {
      const group = randomUUID()
      /** The members that use a slot right now; several users of one member may use it. */
      const inside = new Map<number, Array<string>>()
      let uses = 0
      let shared = 0
      /** Uses random slots until the member leaves. */
      const worker = (name: string, membership: Membership) =>
        Effect.gen(function* () {
          const slot = yield* Random.nextIntBetween(0, count)
          yield* membership.use(
            slot,
            Effect.acquireUseRelease(
              Effect.sync(() => {
                uses++
                const users = inside.get(slot) ?? []
                if (users.some((user) => user !== name)) shared++
                inside.set(slot, [...users, name])
              }),
              () => Effect.sleep(1),
              () => Effect.sync(() => inside.get(slot)!.splice(inside.get(slot)!.indexOf(name), 1))
            )
          )
          yield* Effect.yieldNow
        }).pipe(Effect.forever)
      const start = Effect.fnUntraced(function* (name: string) {
        const member = yield* joinGroup(yield* makeProcess, group)
        yield* Effect.forEach([1, 2, 3, 4], () => Effect.forkScoped(worker(name, member.membership)))
        return member
      })
      const one = yield* start("one")
      yield* divided([one], [64])
      for (let round = 0; round < 5; round++) {
        const two = yield* start("two")
        const three = yield* start("three")
        yield* divided([one, two, three], [22, 21, 21])
        yield* two.leave
        yield* three.leave
        yield* divided([one], [64])
      }
      assert.strictEqual(shared, 0)
      assert.isAbove(uses, 100)
    })
  )
})

/** Replaces Postgres' function by one of the same name, which fails in its nth call after it has taken its lock. */
const failingLocks = (nth: number) => [
  "CREATE SCHEMA failing",
  "CREATE SEQUENCE failing.calls",
  `CREATE FUNCTION failing.pg_try_advisory_lock(a int, b int) RETURNS boolean LANGUAGE plpgsql AS $$
   BEGIN
     IF pg_catalog.pg_try_advisory_lock(a, b) THEN
       IF nextval('failing.calls') = ${nth} THEN RAISE EXCEPTION 'out of shared memory'; END IF;
       RETURN true;
     END IF;
     RETURN false;
   END $$`
]

for (const [what, nth] of [
  ["the membership", 1],
  ["slots", 10]
] as const) {
  it.live(`a lock on ${what} taken by a statement that then failed is lost only until the session's end`, () =>
    Effect.gen(function* () {
      const { name, url } = yield* TestDatabase
      const sql = yield* PgClient.PgClient
      for (const statement of failingLocks(nth)) yield* sql.unsafe(statement)
      yield* sql.unsafe(`ALTER DATABASE ${name} SET search_path = failing, pg_catalog, public`)
      const context = yield* Layer.build(Layer.fresh(EmbeddedMember.platform(url)))
      const { held } = yield* Context.get(context, Ownership).join("group", count)
      const locks = Effect.map(
        sql<{ readonly members: number; readonly slots: number }>`
          SELECT count(*) FILTER (WHERE classid = ${BigInt(lockClass("member group") >>> 0)}::int8::oid)::int4 AS members,
                 count(*) FILTER (WHERE classid = ${BigInt(lockClass("slot group") >>> 0)}::int8::oid)::int4 AS slots
          FROM pg_locks WHERE locktype = 'advisory' AND granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
        ([row]) => row
      )
      yield* within(
        "all slots, and one membership",
        Effect.repeat(Effect.all([held, locks]), {
          until: ([mine, all]) => mine.length === count && all?.slots === count && all.members === 1,
          schedule: Schedule.spaced("20 millis")
        })
      )
    }).pipe(
      Effect.scoped,
      Effect.provide(Layer.merge(TestDatabase.layerPool, Layer.succeed(References.MinimumLogLevel, "Fatal")))
    )
  )
}
