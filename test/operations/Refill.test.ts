/** The archive filled from the topic: what comes back, what is left alone, and the refusals. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as EmbeddedTopicReader from "../../src/brokers/embedded/EmbeddedTopicReader.ts"
import { Broker, type BrokerRecord } from "../../src/brokers/Broker.ts"
import * as Envelope from "../../src/brokers/Envelope.ts"
import * as Maintenance from "../../src/operations/Maintenance.ts"
import { type Progress, Refill } from "../../src/operations/refill/Refill.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import { RetentionSettings } from "../../src/platform/Retention.ts"
import * as DatabaseClock from "../support/DatabaseClock.ts"
import * as Deliveries from "../support/Deliveries.ts"
import * as World from "./RebuildWorld.ts"

const { apply, archive, damage, make, operator, rebuild, trails, versions, world } = World
const { idOf, topic } = Deliveries

const refillWith = (outboxDays: number) =>
  Refill.layer.pipe(
    Layer.provide(EmbeddedTopicReader.layer),
    Layer.provide(Layer.succeed(RetentionSettings, { outboxDays, inboxDays: 8, taskDays: 30 }))
  )

/** Fills the archive, with a retention of so many days. */
const refill = (
  options: {
    readonly days?: number
    readonly dry?: boolean
    readonly sinceSeconds?: number
    readonly erased?: ReadonlyArray<string>
  } = {},
  tell: (progress: Progress) => Effect.Effect<void> = () => Effect.void
) =>
  Refill.use(({ run }) =>
    run(
      {
        topic,
        consumers: ["scribe"],
        erasable: { field: "customerId", erasedOf: () => Effect.succeed(new Set(options.erased)) },
        ...(options.sinceSeconds === undefined ? {} : { sinceSeconds: options.sinceSeconds })
      },
      options.dry === true ? undefined : operator,
      tell
    )
  ).pipe(Effect.provide(Layer.fresh(refillWith(options.days ?? 0))))

/** A record as the outbox sends it: of the archive's row, and with these changes. */
const recordOf = (id: string, version: number, changes: Partial<Envelope.StoredEvent> = {}) =>
  Envelope.toRecord({
    eventId: idOf(id, version),
    topic,
    eventType: "Counted",
    schemaVersion: 1,
    aggregateType: "Counter",
    aggregateId: id,
    aggregateVersion: version,
    occurredAt: "2026-01-01T12:00:00.000Z",
    traceId: "0".repeat(32),
    spanId: "0".repeat(16),
    data: "{}",
    ...changes
  })

const send = (records: ReadonlyArray<BrokerRecord>) =>
  Broker.use((broker) =>
    Effect.gen(function* () {
      yield* broker.ensureTopic(topic, 1)
      const [first, ...rest] = records
      yield* broker.publish({ topic, partition: 0, records: [first!, ...rest] })
    })
  )

/** Publishes, archives and applies these versions. */
const happen = (subscriber: ReturnType<typeof make>["subscriber"], id: string, list: ReadonlyArray<number>) =>
  Effect.gen(function* () {
    yield* send(list.map((version) => recordOf(id, version)))
    yield* archive(id, list)
    yield* apply(subscriber, id, list)
  })

/** The rows of the archive as far as they are the event's own. */
const rows = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`
    SELECT event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id, span_id,
           data::text AS data, broker_partition, history FROM event_log ORDER BY event_id`
)

const counted = { read: 0, filled: 0, present: 0, older: 0, foreign: 0, unknown: 0, erased: 0, different: 0 }

it.live("what retention has dropped comes back as it was; a rebuild that was refused has the rows of before", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* DatabaseClock.install
    const { projection, subscriber } = make()
    yield* happen(subscriber, "a", versions(1, 1_300))
    for (const id of ["b", "c"]) yield* happen(subscriber, id, versions(1, 3))
    const [before, right] = [yield* rows, yield* trails]
    const places = sql`SELECT event_id, broker_offset, published_at FROM event_log ORDER BY event_id`
    const published = yield* sql`SELECT min(appended_at) AS first, max(appended_at) AS last FROM broker_log`
    yield* DatabaseClock.advance("5 days")
    yield* Maintenance.runOnce()
    assert.deepStrictEqual(yield* rows, [])
    yield* damage
    const refused = yield* Effect.flip(rebuild(projection))
    assert.include(refused.message, "Where the topic still has them, paid-once archive refill fills them in")

    const told: Array<Progress> = []
    const done = yield* refill({}, (progress) => Effect.sync(() => void told.push(progress)))
    assert.deepStrictEqual(done, {
      topic,
      dryRun: false,
      ...counted,
      read: 1_306,
      filled: 1_306,
      named: { unknown: [], different: [] }
    })
    assert.deepStrictEqual(
      told.map(({ filled, phase, total }) => `${phase} ${filled}/${total}`),
      ["reading 500/1306", "reading 1000/1306", "reading 1306/1306", "read 1306/1306"]
    )
    assert.deepStrictEqual(yield* rows, before)
    const [span] = yield* sql`SELECT min(published_at) AS first, max(published_at) AS last FROM event_log`
    assert.deepStrictEqual(span, published[0])
    assert.deepStrictEqual(
      yield* sql`SELECT DISTINCT tableoid::regclass::text AS day FROM event_log`,
      [{ day: "event_log_20261121" }],
      "the partition of the day that their ids tell"
    )
    const audit = yield* sql`SELECT actor, action, reason, subject, subject_id AS id, after ->> 'status' AS status,
      after ->> 'filled' AS filled FROM operator_audit ORDER BY audit_id`
    const entry = { actor: "ada", action: "refill", reason: "a test", subject: "archive", id: topic }
    assert.deepStrictEqual(audit, [
      { ...entry, status: "begun", filled: null },
      { ...entry, status: "ended", filled: "1306" }
    ])

    // Once more changes nothing, and upkeep that keeps events for ever lets them be.
    const filled = yield* places
    assert.deepInclude(yield* refill(), { filled: 0, present: 1_306 })
    yield* Effect.provideService(Maintenance.runOnce(), RetentionSettings, {
      outboxDays: 0,
      inboxDays: 8,
      taskDays: 30
    })
    assert.deepStrictEqual(yield* places, filled)
    yield* rebuild(projection)
    assert.deepStrictEqual(yield* trails, right)
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("what is there stays, what is no lost event is left out, and what a person should see is named", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { projection, subscriber } = make()
    yield* happen(subscriber, "kept", versions(1, 3))
    // The archive was off. A lost acknowledgement made a second copy of each.
    for (let copy = 0; copy < 2; copy++) yield* send(versions(1, 2).map((version) => recordOf("lost", version)))
    yield* apply(subscriber, "lost", versions(1, 2))
    // Still in the queue, and a dead letter: they are not lost.
    yield* send([recordOf("queued", 1), recordOf("buried", 1)])
    yield* apply(subscriber, "queued", [1])
    yield* apply(subscriber, "buried", [1])
    yield* Deliveries.buryInOutbox("buried", 1, "discarded")
    yield* sql`
      INSERT INTO outbox_events (lane, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at,
        trace_id, span_id, record_bytes, data)
      VALUES (${laneOf("queued")}::int2, ${idOf("queued", 1)}::uuid, ${topic}, 'Counted', 1, 'Counter', 'queued', 1, clock_now(),
        ${"0".repeat(32)}, ${"0".repeat(16)}, 100, '{}')`
    // Of a history that this database does not have.
    yield* send([recordOf("kept", 4), recordOf("ahead", 1)])
    // Not of an outbox: no event, no header, and an id of another version.
    const headless = { ...recordOf("lost", 2, { eventId: idOf("headless", 1) }), headers: {} }
    const other = recordOf("lost", 2, { eventId: "01a1fd40-0000-4000-8000-000000000001" })
    yield* send([{ key: "x", value: new TextEncoder().encode("{broken"), headers: {} }, headless, other])
    // Other data, or another time, under an id of the archive's, and other events under versions that are taken: in the archive, and in the topic.
    yield* send([
      recordOf("kept", 1, { data: '{"amount":1}' }),
      recordOf("kept", 3, { occurredAt: "2026-01-01T12:00:00.001Z" }),
      recordOf("kept", 2, { eventId: idOf("imposter", 2) }),
      recordOf("lost", 1, { eventId: idOf("imposter", 1) })
    ])
    const [before, right] = [yield* rows, yield* trails]
    const expected = { ...counted, read: 18, filled: 2, present: 7, unknown: 2, foreign: 3, different: 4 }
    const dry = yield* refill({ dry: true, days: 3 })
    assert.deepInclude(dry, { dryRun: true, ...expected })
    assert.deepStrictEqual([yield* rows, yield* sql`SELECT 1 AS one FROM operator_audit`], [before, []])
    const done = yield* refill()
    assert.deepInclude(done, { dryRun: false, ...expected })
    assert.deepStrictEqual(done.named, dry.named)
    const named = (kind: "unknown" | "different") =>
      done.named[kind].map(({ aggregateId, eventId, version }) => `${aggregateId}/${version} ${eventId}`)
    assert.deepStrictEqual(named("unknown"), [`kept/4 ${idOf("kept", 4)}`, `ahead/1 ${idOf("ahead", 1)}`])
    assert.deepStrictEqual(named("different"), [
      `kept/1 ${idOf("kept", 1)}`,
      `kept/3 ${idOf("kept", 3)}`,
      `kept/2 ${idOf("imposter", 2)}`,
      `lost/1 ${idOf("imposter", 1)}`
    ])
    const after = yield* rows
    assert.deepStrictEqual(
      after.filter((row) => row["aggregate_id"] !== "lost"),
      before
    )
    const ofLost = after.filter((row) => row["aggregate_id"] === "lost").map((row) => row["aggregate_version"])
    assert.sameMembers(ofLost, [1, 2])
    assert.deepInclude(yield* refill(), { ...expected, filled: 0, present: 9 })
    yield* rebuild(projection)
    assert.deepStrictEqual(yield* trails, right)
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("an event that an erasure has changed in the archive counts apart from one that was damaged", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { subscriber } = make()
    const dataOf = (customer: string, note: string) => `{"customerId":${JSON.stringify(customer)},"note":"${note}"}`
    yield* send([1, 2, 3].map((version) => recordOf("a", version, { data: dataOf('ada "the first\\"', "x") })))
    yield* apply(subscriber, "a", versions(1, 3))
    yield* refill()
    const set = (version: number, data: string) =>
      sql`UPDATE event_log SET data = ${data}::json WHERE aggregate_version = ${version}::int4`
    yield* set(1, dataOf("erased-a", "x"))
    yield* set(2, dataOf("erased-a", "damaged"))
    yield* set(3, dataOf("grace", "x"))
    const { named, ...counts } = yield* refill({ dry: true })
    assert.deepInclude(counts, { erased: 1, different: 2, present: 0, filled: 0 })
    assert.deepStrictEqual(
      named.different.map(({ version }) => version),
      [2, 3]
    )
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("what the archive has lost comes back without what an erasure has taken", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { subscriber } = make()
    const dataOf = (customer: string) => `{"customerId":${JSON.stringify(customer)},"note":"\\"customerId\\":\\"x\\""}`
    const known = dataOf('ada "the first\\" $&')
    for (const id of ["a", "b"]) {
      yield* send([1, 2].map((version) => recordOf(id, version, { data: version === 1 ? known : "{}" })))
      yield* apply(subscriber, id, versions(1, 2))
    }
    assert.deepInclude(yield* refill({ erased: ["a"] }), { filled: 4, erased: 0, different: 0 })
    assert.deepStrictEqual(
      yield* sql`SELECT aggregate_id AS id, data::text AS data FROM event_log ORDER BY aggregate_id, aggregate_version`,
      [
        { id: "a", data: dataOf("erased-a") },
        { id: "a", data: "{}" },
        { id: "b", data: known },
        { id: "b", data: "{}" }
      ]
    )
    assert.deepInclude(yield* refill({ erased: ["a"] }), { filled: 0, present: 3, erased: 1, different: 0 })
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("data comes back byte for byte, whatever its writer's spelling", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { subscriber } = make()
    const data = '{ "b": 1.0, "2": 1e2, "1": "\\u00e4\\ud83d\\ude00 ü", "b": 12345678901234567890 }'
    yield* send([recordOf("a", 1, { data, eventType: 'Cou"nted', spanId: "12345678abcdef01" })])
    yield* apply(subscriber, "a", [1])
    yield* refill()
    assert.deepStrictEqual(yield* sql`SELECT data::text AS data, event_type, span_id FROM event_log`, [
      { data, event_type: 'Cou"nted', span_id: "12345678abcdef01" }
    ])
    assert.deepInclude(yield* refill(), { filled: 0, present: 1, different: 0 })
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("what upkeep would drop again is refused, and what it keeps is filled in", () =>
  Effect.gen(function* () {
    yield* DatabaseClock.install
    const { subscriber } = make()
    yield* happen(subscriber, "old", versions(1, 3))
    yield* DatabaseClock.advance("5 days")
    yield* happen(subscriber, "young", versions(1, 3))
    const sql = yield* SqlClient.SqlClient
    yield* sql`DELETE FROM event_log`
    const refused = yield* Effect.flip(refill({ days: 3 }))
    assert.strictEqual(
      refused.message,
      "the archive is not filled from topic counters: it keeps events for 3 days (OUTBOX_RETENTION_DAYS), and older ones would be dropped " +
        "again. Start the service with OUTBOX_RETENTION_DAYS=0 first, or fill in --since 3d"
    )
    yield* Effect.flip(refill({ days: 3, sinceSeconds: 4 * 86_400 }))
    assert.deepStrictEqual(yield* sql`SELECT 1 AS one FROM event_log`, [])
    assert.deepInclude(yield* refill({ days: 3, sinceSeconds: 3 * 86_400 }), { filled: 3, older: 3 })
    yield* Maintenance.runOnce()
    assert.strictEqual((yield* rows).length, 3)
    assert.deepInclude(yield* refill({ days: 3, dry: true }), { filled: 3, present: 3 })
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("a refill that is cut off leaves whole events, and the next one the rest; two at once are refused", () =>
  Effect.gen(function* () {
    const { subscriber } = make()
    yield* happen(subscriber, "a", versions(1, 1_300))
    const before = yield* rows
    const sql = yield* SqlClient.SqlClient
    yield* sql`DELETE FROM event_log`
    // It stands between two of its transactions.
    const first = yield* Effect.forkScoped(refill({}, ({ read }) => (read > 500 ? Effect.never : Effect.void)))
    yield* Effect.repeat(rows, { until: ({ length }) => length === 1_000 })
    const second = yield* Effect.flip(refill())
    assert.include(second.message, "one refill runs at a time")
    yield* Fiber.interrupt(first)
    assert.deepInclude(yield* refill(), { read: 1_300, filled: 300, present: 1_000 })
    assert.deepStrictEqual(yield* rows, before)
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("a topic that grows meanwhile is read to the end that it had", () =>
  Effect.gen(function* () {
    const { subscriber } = make()
    yield* happen(subscriber, "a", versions(1, 600))
    let late = 0
    const context = yield* Effect.context<Broker>()
    const done = yield* refill({}, ({ phase }) =>
      phase === "read" ? Effect.void : Effect.orDie(Effect.provide(send([recordOf("late", ++late)]), context))
    )
    assert.deepInclude(done, { read: 600, present: 600, unknown: 0 })
    assert.deepInclude(yield* refill(), { read: 602, unknown: 2 })
  }).pipe(Effect.scoped, Effect.provide(world))
)
