/** Rebuilds of a projection: the new rows, the events that are left out, and the refusals. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { PermanentFailure } from "../../src/inbox/Subscriber.ts"
import * as AppliedRuns from "../../src/operations/rebuild/AppliedRuns.ts"
import { type Progress, Rebuild } from "../../src/operations/rebuild/Rebuild.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import * as Deliveries from "../support/Deliveries.ts"
import * as World from "./RebuildWorld.ts"

const { apply, archive, damage, happen, leftOver, make, operator, rebuild, trails, versions, world } = World
const { idOf } = Deliveries

it.live("a damaged projection is made anew from the archive, page by page, and tells how far it is", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { projection, subscriber } = make()
    yield* happen(subscriber, "a", versions(1, 2_300))
    for (const id of ["b", "c"]) yield* happen(subscriber, id, versions(1, 3))
    // Nothing of another consumer's, and nothing that the consumer has not applied yet.
    yield* archive("c", [4, 5])
    yield* archive("d", [1])
    const right = yield* trails
    assert.deepStrictEqual(right, [`a ${versions(1, 2_300).join(",")}`, "b 1,2,3", "c 1,2,3"])
    yield* damage
    const told: Array<Progress> = []
    const rebuilt = yield* rebuild(projection, told)
    assert.deepStrictEqual(yield* trails, right)
    assert.deepInclude(rebuilt, {
      consumer: "scribe",
      events: 2_306,
      tables: [{ table: "trails", removed: 1, added: 1, changed: 1 }]
    })
    assert.strictEqual(yield* leftOver, 0)
    const filling = told.filter(({ phase }) => phase === "filling")
    // It tells of its own rows, for nobody has left any.
    assert.deepStrictEqual([...new Set(told.map(({ phase }) => phase))], ["filling", "swapping", "emptying"])
    assert.deepStrictEqual(
      filling.map(({ done, total }) => `${done}/${total}`),
      ["0/2306", "1000/2306", "2000/2306", "2306/2306"]
    )
    assert.strictEqual(filling.at(-1)?.secondsLeft, 0)
    const entries = yield* sql`SELECT actor, action, reason, subject, subject_id AS id, after FROM operator_audit`
    assert.deepStrictEqual(entries, [
      {
        actor: "ada",
        action: "rebuild",
        reason: "a test",
        subject: "consumer",
        id: "scribe",
        after: { events: 2_306, tables: rebuilt.tables }
      }
    ])
    // The next slice goes on where the table is.
    yield* apply(subscriber, "c", [4, 5])
    assert.include(yield* trails, "c 1,2,3,4,5")
    assert.deepInclude(yield* rebuild(projection), { tables: [{ table: "trails", removed: 0, added: 0, changed: 0 }] })
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("events that are large come in several pages, and none is lost at their bounds", () =>
  Effect.gen(function* () {
    const { projection, subscriber } = make()
    const data = { text: "x".repeat(900_000) }
    for (const id of ["a", "b", "c"]) yield* happen(subscriber, id, versions(1, 4), data)
    const told: Array<Progress> = []
    yield* rebuild(projection, told)
    assert.deepStrictEqual(yield* trails, ["a 1,2,3,4", "b 1,2,3,4", "c 1,2,3,4"])
    assert.deepStrictEqual(
      told.filter(({ phase }) => phase === "filling").map(({ done }) => done),
      [0, 5, 10, 12]
    )
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("an event that is applied and not archived yet is found in the queue", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { projection, subscriber } = make()
    yield* happen(subscriber, "a", versions(1, 3))
    yield* sql`
      WITH gone AS (DELETE FROM event_log WHERE aggregate_version > 1 RETURNING *)
      INSERT INTO outbox_events (lane, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at,
        trace_id, span_id, record_bytes, data)
      SELECT ${laneOf("a")}::int2, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at,
        trace_id, span_id, 100, data FROM gone`
    assert.deepInclude(yield* rebuild(projection), { events: 3 })
    assert.deepStrictEqual(yield* trails, ["a 1,2,3"])
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("events that the consumer holds come later, and those that were given up don't come", () =>
  Effect.gen(function* () {
    const letters = yield* InboxDeadLetters
    const { broken, projection, subscriber } = make()
    // Held at 2, and 3 is parked behind it.
    broken.add("held/2")
    yield* happen(subscriber, "held", versions(1, 3))
    // Version 2 is discarded at the inbox, and the rest has gone on.
    const dead = make()
    dead.broken.add("given/2")
    yield* happen(dead.subscriber, "given", versions(1, 3))
    yield* letters.discard("scribe", idOf("given", 2), operator)
    yield* Deliveries.retryAll(subscriber, 1)
    // Versions 2 and 3 came too late: an operator had gone on without them.
    yield* archive("skipped", versions(1, 5))
    yield* apply(subscriber, "skipped", [1])
    yield* apply(subscriber, "skipped", [4, 5])
    yield* letters.skip("scribe", idOf("skipped", 4), operator)
    yield* Deliveries.retryAll(subscriber, 1)
    // Version 2 was discarded before it was ever sent.
    yield* happen(subscriber, "unsent", [1])
    yield* Deliveries.buryInOutbox("unsent", 2, "discarded")
    yield* happen(subscriber, "unsent", [3])

    const right = yield* trails
    assert.deepStrictEqual(right, ["given 1,3", "held 1", "skipped 1,4,5", "unsent 1,3"])
    yield* damage
    yield* rebuild(projection)
    assert.deepStrictEqual(yield* trails, right)
    broken.clear()
    yield* Deliveries.retryAll(subscriber, 2)
    assert.include(yield* trails, "held 1,2,3")
    yield* rebuild(projection)
    assert.include(yield* trails, "held 1,2,3")
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live(
  "what was given up at the outbox and has arrived after all keeps its effect, and what never came has none",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { projection, subscriber } = make()
      // Applied, although the answer to its send was lost and an operator has given it up.
      yield* archive("arrived", [1, 3])
      yield* apply(subscriber, "arrived", [1, 2])
      yield* Deliveries.buryInOutbox("arrived", 2, "discarded")
      yield* apply(subscriber, "arrived", [3])
      // Given up before the consumer reads on: within a slice, at the aggregate's first event, and behind a hold.
      for (const [id, version] of [
        ["unsent", 2],
        ["unsent", 3],
        ["first", 1],
        ["held", 2]
      ] as const) {
        yield* archive(
          id,
          [version + 1].filter((next) => id !== "unsent" || next === 4)
        )
        if (id === "held") yield* apply(subscriber, id, [3])
        yield* Deliveries.buryInOutbox(id, version, "discarded")
      }
      for (const id of ["unsent", "held"]) yield* archive(id, [1])
      yield* apply(subscriber, "unsent", [1, 4])
      yield* apply(subscriber, "first", [2])
      yield* apply(subscriber, "held", [1])
      yield* Deliveries.retryAll(subscriber, 2)
      const right = yield* trails
      assert.deepStrictEqual(right, ["arrived 1,2,3", "first 2", "held 1,3", "unsent 1,4"])
      yield* damage
      // The inbox forgets its marks after eight days.
      yield* sql`DELETE FROM processed_events`
      yield* rebuild(projection)
      assert.deepStrictEqual(yield* trails, right)
      // A late send of what was given up comes too late.
      yield* apply(subscriber, "unsent", [2, 3])
      yield* rebuild(projection)
      assert.deepStrictEqual(yield* trails, right)
    }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("where the archive lacks an event that was applied, nothing is changed, and the refusal names it", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { projection, subscriber } = make()
    for (const id of ["a", "b", "c"]) yield* happen(subscriber, id, versions(1, 3))
    yield* sql`DELETE FROM event_log WHERE aggregate_id = 'b' AND aggregate_version < 3`
    yield* damage
    const before = yield* trails
    const refused = yield* Effect.flip(rebuild(projection))
    assert.strictEqual(
      refused.message,
      "scribe can't be rebuilt: it has applied events that the archive does not have, Counter b version 1, Counter b version 2 first. " +
        "The archive begins with an event of 2026-01-01T12:00:00.000Z. Where the topic still has them, paid-once archive refill fills them in: " +
        "a projection that is to be rebuilt needs them all, and so OUTBOX_ARCHIVE=on and OUTBOX_RETENTION_DAYS=0"
    )
    assert.deepStrictEqual(yield* trails, before)
    assert.strictEqual(yield* leftOver, 0)
    yield* sql`DELETE FROM event_log`
    assert.include((yield* Effect.flip(rebuild(projection))).message, "The archive is empty")
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("an event that the handler can't apply any more ends the rebuild, with the reason", () =>
  Effect.gen(function* () {
    const { brokenInRebuild, hooks, projection, subscriber } = make()
    yield* happen(subscriber, "a", versions(1, 3))
    brokenInRebuild.add("a/2")
    const before = yield* trails
    const refused = yield* Effect.flip(rebuild(projection))
    assert.strictEqual(refused.message, "scribe is not rebuilt: its handler failed: out of ink")
    brokenInRebuild.clear()
    hooks.rebuilt = () => Effect.die(new PermanentFailure({ reason: "a defect" }))
    assert.include(String(yield* Effect.exit(rebuild(projection))), "a defect")
    hooks.rebuilt = () => Effect.void
    assert.deepStrictEqual(yield* trails, before)
    yield* rebuild(projection)
    assert.deepStrictEqual([yield* trails, yield* leftOver], [before, 0])
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("two at once: the second is refused, and names the first", () =>
  Effect.gen(function* () {
    const { projection, subscriber } = make()
    yield* happen(subscriber, "a", versions(1, 3))
    // It stands between two of its transactions.
    const first = yield* Effect.forkScoped(Rebuild.use(({ run }) => run(projection, operator, () => Effect.never)))
    yield* Effect.repeat(leftOver, { until: (rows) => rows > 0 })
    const refused = yield* Effect.flip(rebuild(projection))
    assert.match(
      refused.message,
      /^scribe is being rebuilt already, since \d{4}-.*Z by ada: one rebuild runs at a time$/
    )
    yield* Fiber.interrupt(first)
    yield* rebuild(projection)
    assert.strictEqual(yield* leftOver, 0)
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("a rebuild that was cut off leaves nothing to the next one, which starts anew", () =>
  Effect.gen(function* () {
    const { hooks, projection, subscriber } = make()
    yield* happen(subscriber, "a", versions(1, 1_500))
    const right = yield* trails
    let written = 0
    hooks.rebuilt = () => (++written > 1_200 ? Effect.never : Effect.void)
    const first = yield* Effect.forkScoped(rebuild(projection))
    yield* Effect.repeat(
      Effect.sync(() => written),
      { until: (count) => count > 1_200 }
    )
    yield* Fiber.interrupt(first)
    assert.isAbove(yield* leftOver, 0)
    assert.deepStrictEqual(yield* trails, right)
    hooks.rebuilt = () => Effect.void
    const told: Array<Progress> = []
    yield* rebuild(projection, told)
    assert.strictEqual(told[0]?.phase, "cleaning")
    assert.deepStrictEqual([yield* trails, yield* leftOver], [right, 0])
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("a rebuild whose row another one has taken writes nothing any more", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { projection, subscriber } = make()
    yield* happen(subscriber, "a", versions(1, 1_500))
    yield* damage
    const before = yield* trails
    const taken: Array<Progress> = []
    const late = yield* Effect.flip(
      Effect.flatMap(Rebuild, ({ run }) =>
        run(projection, operator, (progress) =>
          Effect.suspend(() => {
            taken.push(progress)
            // Its lock's connection is lost, and it does not know; somebody else begins.
            return progress.done === 1_000
              ? Effect.asVoid(Effect.orDie(sql`UPDATE rebuilds SET rebuild_id = uuidv4()`))
              : Effect.void
          })
        )
      )
    )
    assert.include(late.message, "another rebuild took over")
    assert.deepStrictEqual(yield* trails, before)
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("a projection that can't be rebuilt is refused before anything is read", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const anywhere = make("anywhere", { firstSight: "any-version" })
    assert.include((yield* Effect.flip(rebuild(anywhere.projection))).message, "it begins at any version")
    yield* sql`ALTER TABLE trails ADD COLUMN note text`
    assert.include((yield* Effect.flip(rebuild(make().projection))).message, "a migration has to change both")
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("whatever plan Postgres takes, the cursors of many aggregates are read once each", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    // Compared each with each, these take minutes, and a silent connection is given up after 15 s.
    for (const table of ["consumer_cursors", "rebuild_cursors"]) {
      yield* sql`
        INSERT INTO ${sql(table)} (consumer_name, aggregate_id, aggregate_type, version)
        SELECT 'scribe', 'many-' || n, 'Counter', CASE WHEN n = 7 AND ${table} = 'rebuild_cursors' THEN 1 ELSE 2 END FROM generate_series(1, 60000) AS n`
    }
    const client = yield* PgClient.PgClient
    const behind = Effect.gen(function* () {
      const { sql } = yield* Transaction
      // As where the statistics say that one of them has no row.
      yield* sql`
        SELECT set_config('enable_' || name, 'off', true)
        FROM unnest(ARRAY['hashjoin', 'mergejoin', 'indexscan', 'indexonlyscan', 'bitmapscan']) AS name`
      return yield* AppliedRuns.behind("scribe", 10)
    })
    assert.deepStrictEqual(yield* Effect.provideService(Transaction.run(behind), PgClient.PgClient, client), [
      { aggregateId: "many-7", aggregateType: "Counter", after: 1, until: 2 }
    ])
  }).pipe(Effect.scoped, Effect.provide(world))
)
