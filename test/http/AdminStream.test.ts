/** The live stream of the overview: one read for all, resumed without a gap, bounded, and no burden for a stop or for requests. */
import { assert, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Layer, Scope, Stream } from "effect"
import { SqlClient } from "effect/sql"
import { AdmissionSettings } from "../../src/http/Admission.ts"
import { AccessSettings } from "../../src/http/access/Credentials.ts"
import * as ApiKeys from "../../src/http/access/ApiKeys.ts"
import { Health } from "../../src/http/Health.ts"
import { Overviews } from "../../src/http/admin/Overviews.ts"
import { LiveStream, LiveStreamSettings } from "../../src/http/admin/LiveStream.ts"
import * as HttpServer from "../../src/http/HttpServer.ts"
import { eventually } from "../support/Counters.ts"
import { listen } from "../support/EventStream.ts"
import { idAt } from "../support/SqlIds.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { anyPort, newOrder, send, sendElsewhere, underHttpOn } from "./Service.ts"

const quick = { beatMillis: 50, maxReadShare: 1, heartbeatMillis: 60_000, lingerMillis: 500, maxListeners: 5 }

/** The service with these settings of the stream, in a scope that the test may close. */
const serviceWith = (settings: Partial<typeof quick> = {}, maxRequests = 256) =>
  HttpServer.layer.pipe(
    Layer.provide(Layer.succeed(HttpServer.HttpSettings, { ...anyPort, graceMillis: 60_000 })),
    Layer.provide(Layer.succeed(LiveStreamSettings, { ...quick, ...settings })),
    Layer.provide(Layer.succeed(AdmissionSettings, { maxRequests, answerTimeoutMillis: 30_000 })),
    Layer.provide(Layer.succeed(AccessSettings, { keys: undefined, adminToken: ApiKeys.ofAdmin(adminToken) })),
    Layer.provideMerge(underHttpOn(TestDatabase.layer))
  )

const adminToken = "a-token-of-sixteen-and-more"
const admin = { authorization: `Bearer ${adminToken}` }

/** Listens as an operator. */
const open = (url: string, headers: Readonly<Record<string, string>> = {}) => listen(url, { ...admin, ...headers })

const address = Effect.map(HttpServer.BoundAddress, ({ url }) => url)

/** Statements that sessions of this database have run so far, as far as Postgres counts transactions. */
const reads = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ readonly scans: bigint }>`
    SELECT coalesce(sum(seq_scan + coalesce(idx_scan, 0)), 0)::int8 AS scans
    FROM pg_stat_user_tables WHERE relname IN ('outbox_events', 'outbox_holds', 'mail_deliveries', 'operator_pauses')`
  return Number(row!.scans)
})

it.live("a listener gets samples with rising ids, and the overview; the answer is kept by no proxy", () =>
  Effect.gen(function* () {
    const url = yield* address
    yield* send(`${url}/orders`, { body: newOrder })
    const stream = yield* open(`${url}/admin/stream`)
    const samples = yield* stream.until("sample", 3)
    const ids = samples.map(({ id }) => Number(id))
    assert.deepStrictEqual(
      ids,
      ids.toSorted((a, b) => a - b)
    )
    assert.strictEqual(new Set(ids).size, ids.length)
    assert.deepStrictEqual(
      samples.map(({ data }) => data.id),
      ids
    )
    assert.deepInclude(samples[0]!.data, { queued: 1, ordersPaidPerMinute: 0, publishLatencyMillis: null })
    const [overview] = yield* stream.until("overview")
    assert.strictEqual(overview!.data.outbox.queued, 1)
    assert.lengthOf(overview!.data.lanes, 64)
    assert.include(stream.headers, {
      "content-type": "text/event-stream",
      "cache-control": "no-store",
      "x-accel-buffering": "no",
      connection: "close"
    })
    assert.match(stream.text(), /^retry: \d+\n\n/)
  }).pipe(Effect.scoped, Effect.provide(serviceWith()))
)

it.live("what was paid and published before somebody looked is in the first answer, from the first of it on", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const url = yield* address
    const placed = yield* send(`${url}/orders`, { body: newOrder })
    const paid = yield* send(`${url}/orders/${placed.json.id}/pay`, {
      body: { paymentMethod: "pm_ok" },
      headers: { "idempotency-key": "before" }
    })
    assert.strictEqual(paid.status, 200)
    yield* sql`UPDATE payments SET captured_at = captured_at - interval '3 minutes'`
    // Twenty events that waited for a minute each, an outage's backlog, and one that is too old for the chart.
    yield* sql`
      INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at, trace_id,
        span_id, data, broker_partition, broker_offset, published_at)
      SELECT ${sql.literal(idAt("at"))}, 'orders', 'OrderPlaced', 1, 'Order', n::text, 1, at, repeat('0', 32), repeat('0', 16),
        '{}', 0, n, at + interval '1 minute'
      FROM (SELECT n, now() - CASE n WHEN 0 THEN interval '30 minutes' ELSE interval '6 minutes' END AS at FROM generate_series(0, 20) AS n) AS made`
    const stream = yield* open(`${url}/admin/stream`)
    yield* stream.until("overview")
    const samples = (yield* stream.until("sample", 1)).map(({ data }) => data)
    const past = samples.slice(0, -1)
    assert.isTrue(past.length >= 29 && past.length <= 31, String(past.length))
    assert.deepInclude(past[0], {
      eventsPublishedPerSecond: 2,
      publishLatencyMillis: { p50: 60_000, p99: 60_000 },
      queued: null,
      lagSecondsWorst: null
    })
    assert.deepStrictEqual(
      past.slice(1).filter(({ eventsPublishedPerSecond }) => eventsPublishedPerSecond !== 0),
      []
    )
    // A payment counts for a minute, as it does in the figure of now.
    assert.strictEqual(past.filter(({ ordersPaidPerMinute }) => ordersPaidPerMinute === 1).length, 6)
    assert.isTrue(past.every(({ id }, n) => n === 0 || id - past[n - 1]!.id === 10_000))
    assert.deepInclude(samples.at(-1), { ordersPaidPerMinute: 0, queued: 2 })
  }).pipe(Effect.scoped, Effect.provide(serviceWith()))
)

it.live(
  "a listener that comes back with the last id, in a header or in the query, has missed nothing and gets nothing twice",
  () =>
    Effect.gen(function* () {
      const url = yield* address
      const witness = yield* open(`${url}/admin/stream`)
      const first = yield* open(`${url}/admin/stream`)
      const last = (yield* first.until("sample", 2)).at(-1)!.id!
      first.cut()
      yield* witness.until("sample", 6)
      const header = yield* open(`${url}/admin/stream?after=1`, { "last-event-id": last })
      const query = yield* open(`${url}/admin/stream?after=${last}`)
      const foreign = yield* open(`${url}/admin/stream`, { "last-event-id": "of another server" })
      yield* Effect.forEach([header, query, foreign, witness], (stream) => stream.until("sample", 8))
      const seen = (stream: typeof witness) =>
        stream
          .events()
          .filter(({ event }) => event === "sample")
          .map(({ id }) => Number(id))
      const expected = seen(witness).filter((id) => id > Number(last))
      for (const stream of [header, query]) assert.deepStrictEqual(seen(stream).slice(0, 6), expected.slice(0, 6))
      // The whole history: nothing of an unknown id is known.
      assert.deepStrictEqual(seen(foreign).slice(0, 6), seen(witness).slice(0, 6))
      assert.strictEqual((yield* send(`${url}/admin/stream?after=yesterday`, { headers: admin })).status, 400)
    }).pipe(Effect.scoped, Effect.provide(serviceWith()))
)

it.live("a page that is alone and reconnects has missed nothing, and nothing is read once it stays away", () =>
  Effect.gen(function* () {
    const url = yield* address
    const first = yield* open(`${url}/admin/stream`)
    const last = (yield* first.until("sample", 2)).at(-1)!
    first.cut()
    // Reading goes on for the time of a reconnect.
    const second = yield* open(`${url}/admin/stream`, { "last-event-id": last.id! })
    const [missed] = yield* second.until("sample", 3)
    const beats = (Number(missed!.id) - Number(last.id)) / quick.beatMillis
    assert.isBelow(beats, 40, "the samples go on where they were")
    second.cut()
    // Statistics arrive late: they have to be the same for longer than that.
    let before = -1
    yield* eventually(
      "silence",
      Effect.gen(function* () {
        const now = yield* reads
        const isSilent = now === before
        before = now
        yield* Effect.sleep(isSilent ? 0 : 2_500)
        return isSilent
      })
    )
    const third = yield* open(`${url}/admin/stream`, { "last-event-id": last.id! })
    yield* third.until("sample", 2)
    yield* eventually(
      "reading",
      Effect.map(reads, (now) => now > before)
    )
  }).pipe(Effect.scoped, Effect.provide(serviceWith()))
)

it.live(
  "above the bound a listener is refused with 429, and has a place when another one leaves; one read serves all",
  () =>
    Effect.gen(function* () {
      const url = yield* address
      const five = yield* Effect.forEach([1, 2, 3, 4, 5], () => open(`${url}/admin/stream`), { concurrency: 5 })
      const refused = yield* Effect.forEach(
        Array.from({ length: 200 }),
        () => send(`${url}/admin/stream`, { headers: admin }),
        {
          concurrency: 20
        }
      )
      assert.deepStrictEqual([...new Set(refused.map(({ status }) => status))], [429])
      assert.strictEqual(refused[0]!.headers.get("retry-after"), "2")
      // The same moments for all.
      yield* Effect.forEach(five, (stream) => stream.until("sample", 4))
      const common = five.map((stream) => new Set(stream.events().flatMap(({ id }) => id ?? [])))
      const latest = [...common[0]!].slice(-3, -1)
      for (const ids of common) for (const id of latest) assert.isTrue(ids.has(id), id)
      const metrics = yield* send(`${url}/metrics`, { headers: admin })
      assert.match(metrics.text, /^admin_stream_listeners 5$/m)
      five[0]!.cut()
      const late = yield* eventually(
        "a place",
        Effect.map(open(`${url}/admin/stream`), ({ status }) => status === 200)
      )
      return late
    }).pipe(Effect.scoped, Effect.provide(serviceWith()))
)

it.live("a HEAD request joins nobody, and streams take no place of a request", () =>
  Effect.gen(function* () {
    const url = yield* address
    assert.strictEqual((yield* sendElsewhere(`${url}/admin/stream`, { method: "HEAD", headers: admin })).status, 200)
    assert.match((yield* send(`${url}/metrics`, { headers: admin })).text, /^admin_stream_listeners 0$/m)
    const streams = yield* Effect.forEach([1, 2, 3, 4, 5], () => open(`${url}/admin/stream`))
    yield* Effect.forEach(streams, (stream) => stream.until("sample"))
    // Two places, and five streams.
    assert.strictEqual((yield* send(`${url}/orders`, { body: newOrder })).status, 201)
    assert.deepStrictEqual(
      streams.map(({ hasEnded }) => hasEnded()),
      streams.map(() => false)
    )
  }).pipe(Effect.scoped, Effect.provide(serviceWith({}, 2)))
)

it.live("a silent stream is kept open by comments", () =>
  Effect.gen(function* () {
    const url = yield* address
    const stream = yield* open(`${url}/admin/stream`)
    yield* stream.until("overview")
    yield* eventually(
      "two heartbeats",
      Effect.sync(() => stream.comments() >= 2)
    )
  }).pipe(Effect.scoped, Effect.provide(serviceWith({ beatMillis: 60_000, heartbeatMillis: 50 })))
)

it.live("a listener that does not read is cut, and the others go on", () =>
  Effect.gen(function* () {
    const live = yield* LiveStream
    let cuts = 0
    let pieces = 0
    const connection = { cut: () => void (cuts += 1), ended: Effect.never }
    const deaf = yield* live.listen(connection, undefined)
    const other = yield* live.listen({ ...connection, cut: () => assert.fail("it reads") }, undefined)
    // It takes the first piece, as a socket does whose buffer is full then.
    yield* Effect.forkScoped(Stream.runForEach(deaf, () => Effect.never))
    yield* Effect.forkScoped(Stream.runForEach(other, () => Effect.sync(() => (pieces += 1))))
    yield* eventually(
      "the cut",
      Effect.sync(() => cuts === 1)
    )
    const before = pieces
    yield* eventually(
      "more",
      Effect.sync(() => pieces > before + 2)
    )
    assert.strictEqual(cuts, 1)
  }).pipe(
    Effect.scoped,
    Effect.provide(
      LiveStream.layer.pipe(
        Layer.provide(Layer.provide(Overviews.layer, Health.layer)),
        Layer.provide(Layer.succeed(LiveStreamSettings, { ...quick, beatMillis: 1 })),
        Layer.provide(underHttpOn(TestDatabase.layer))
      )
    )
  )
)

it.live("a stream of a session ends with it, and says bye", () =>
  Effect.gen(function* () {
    const url = yield* address
    const signedIn = yield* send(`${url}/admin/session`, { body: { token: adminToken } })
    assert.strictEqual(signedIn.status, 204)
    const cookie = signedIn.headers.get("set-cookie")!.split(";")[0]!
    const ofSession = yield* listen(`${url}/admin/stream`, { cookie })
    const ofToken = yield* open(`${url}/admin/stream`)
    yield* ofSession.until("sample", 2)
    assert.strictEqual(
      (yield* send(`${url}/admin/session`, { method: "DELETE", headers: { cookie, origin: url } })).status,
      204
    )
    yield* ofSession.until("bye")
    yield* eventually("its end", Effect.sync(ofSession.hasEnded))
    assert.isFalse(ofToken.hasEnded())
    assert.strictEqual((yield* listen(`${url}/admin/stream`, { cookie })).status, 401)
  }).pipe(Effect.scoped, Effect.provide(serviceWith()))
)

it.live("a stop says bye to those who listen, and does not wait for them", () =>
  Effect.gen(function* () {
    const scope = yield* Scope.make()
    const context = yield* Layer.buildWithScope(serviceWith(), scope)
    const url = yield* Effect.provide(address, context)
    const streams = yield* Effect.forEach([1, 2, 3], () => open(`${url}/admin/stream`))
    yield* Effect.forEach(streams, (stream) => stream.until("sample"))
    const began = performance.now()
    const stopping = yield* Effect.forkChild(Scope.close(scope, Exit.void))
    for (const stream of streams) {
      yield* stream.until("bye")
      yield* eventually("the end", Effect.sync(stream.hasEnded))
      assert.strictEqual(stream.events().at(-1)!.event, "bye")
    }
    yield* Fiber.join(stopping)
    // The grace is a minute.
    assert.isBelow(performance.now() - began, 20_000)
  }).pipe(Effect.scoped)
)
