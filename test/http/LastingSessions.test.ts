/** Sessions of the console over restarts, processes and outages: what they are bound to, and what ends them everywhere. */
import { PgClient } from "@effect/sql-pg"
import { assert, layer } from "@effect/vitest"
import { Context, Deferred, Effect, Fiber, Layer, Result } from "effect"
import { SqlClient } from "effect/sql"
import { createHash } from "node:crypto"
import * as ApiKeys from "../../src/http/access/ApiKeys.ts"
import { AccessSettings } from "../../src/http/access/Credentials.ts"
import * as Sessions from "../../src/http/access/Sessions.ts"
import * as HttpServer from "../../src/http/HttpServer.ts"
import { eventually } from "../support/Counters.ts"
import * as DatabaseClock from "../support/DatabaseClock.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import { anyPort, send, underHttpOn } from "./Service.ts"

const desk = ApiKeys.draw("desk", "operator")
const keysOf = (entry: string) => Result.getOrThrow(ApiKeys.parse(entry))
const adminToken = "correct-horse-battery"
const both = { keys: keysOf(desk.entry), adminToken: ApiKeys.ofAdmin(adminToken) }

const short = { cacheMillis: 300, lookTimeoutMillis: 300 }

/** Starts a server with these credentials on the file's database, in the surrounding scope. */
const start = Effect.fnUntraced(function* (settings: typeof AccessSettings.Service, waits = short) {
  const { BoundAddress, HttpSettings, layer } = HttpServer
  const server = layer.pipe(
    Layer.provide(Layer.succeed(HttpSettings, anyPort)),
    Layer.provide(Layer.succeed(AccessSettings, settings)),
    Layer.provide(Layer.succeed(Sessions.SessionSettings, waits)),
    Layer.provide(TestProcess.quiet)
  )
  return yield* Effect.map(Layer.build(Layer.fresh(server)), (built) => Context.get(built, BoundAddress))
})
type Server = Effect.Success<ReturnType<typeof start>>

/** The session's id: the cookie's name has the port. */
const signIn = ({ url }: Server, token: string) =>
  Effect.map(
    send(`${url}/admin/session`, { body: { token }, headers: { origin: url } }),
    ({ headers }) => /=([\w-]{43});/.exec(headers.getSetCookie()[0] ?? "")?.[1] ?? ""
  )

const ask = ({ port, url }: Server, id: string, method = "GET", path = "/admin/session") =>
  send(`${url}${path}`, { method, headers: { origin: url, cookie: `paid_once_session_${port}=${id}` } })

const statusOf = (server: Server, id: string) => Effect.map(ask(server, id), ({ status }) => status)

layer(underHttpOn(TestDatabase.layer), { excludeTestServices: true })("sessions in the database", (it) => {
  it.effect(
    "a session goes on after a restart, is known to other processes at once, and a sign-out ends it everywhere",
    () =>
      Effect.gen(function* () {
        const other = yield* start(both)
        // It has looked at the table before the session began.
        assert.strictEqual(yield* statusOf(other, "x".repeat(43)), 401)
        const id = yield* Effect.scoped(
          Effect.gen(function* () {
            const first = yield* start(both)
            const id = yield* signIn(first, adminToken)
            assert.deepStrictEqual((yield* ask(first, id)).json, { actor: "admin", canWrite: true })
            assert.deepStrictEqual((yield* ask(other, id)).json, { actor: "admin", canWrite: true })
            return id
          })
        )
        const next = yield* start(both)
        assert.deepStrictEqual((yield* ask(next, id)).json, { actor: "admin", canWrite: true })
        assert.strictEqual((yield* ask(next, id, "DELETE")).status, 204)
        assert.strictEqual(yield* statusOf(next, id), 401)
        yield* eventually(
          "the sign-out to end it at the other process",
          Effect.map(statusOf(other, id), (status) => status === 401)
        )
      }).pipe(Effect.scoped)
  )

  it.effect(
    "a session has its credential's scope as it is now, and ends with a credential that is removed or changed",
    () =>
      Effect.gen(function* () {
        const first = yield* start(both)
        const [ofAdmin, ofDesk] = [yield* signIn(first, adminToken), yield* signIn(first, desk.key)]
        const demoted = yield* start({ keys: keysOf(desk.entry.replace("operator", "viewer")), adminToken: undefined })
        assert.deepStrictEqual((yield* ask(demoted, ofDesk)).json, { actor: "desk", canWrite: false })
        assert.strictEqual(yield* statusOf(demoted, ofAdmin), 401)
        const changed = yield* start({ keys: undefined, adminToken: ApiKeys.ofAdmin(`${adminToken}-2`) })
        assert.deepStrictEqual([yield* statusOf(changed, ofAdmin), yield* statusOf(changed, ofDesk)], [401, 401])
        const customer = yield* start({ ...both, keys: keysOf(desk.entry.replace("operator", "customer")) })
        assert.deepStrictEqual([yield* statusOf(customer, ofAdmin), yield* statusOf(customer, ofDesk)], [200, 401])
      }).pipe(Effect.scoped)
  )

  it.effect("a session of the start's link ends with its process", () =>
    Effect.gen(function* () {
      const first = yield* start({ keys: undefined })
      const id = yield* signIn(first, new URL(first.consoleUrl ?? "").searchParams.get("token") ?? "")
      assert.strictEqual(yield* statusOf(first, id), 200)
      assert.strictEqual(yield* statusOf(yield* start({ keys: undefined }), id), 401)
    }).pipe(Effect.scoped)
  )

  it.effect("the table has neither an id nor a token, as a hash or otherwise", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`DELETE FROM operator_sessions`
      const id = yield* signIn(yield* start(both), adminToken)
      const rows = JSON.stringify(yield* sql`SELECT digest, name FROM operator_sessions`)
      for (const text of [id, adminToken]) {
        assert.notInclude(rows, text)
        assert.notInclude(rows, createHash("sha256").update(text).digest("hex"))
      }
    }).pipe(Effect.scoped)
  )

  it.effect(
    "while the database does not answer a known session goes on, another one gets 503, and what is open answers",
    () =>
      Effect.gen(function* () {
        const { url: database } = yield* TestDatabase
        const first = yield* start(both)
        const id = yield* signIn(first, adminToken)
        assert.strictEqual(yield* statusOf(first, id), 200)
        const restarted = yield* start(both)
        const patient = yield* start(both, { ...short, lookTimeoutMillis: 600_000 })
        const [isLocked, release] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
        const lock = yield* Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          yield* sql.withTransaction(
            sql`LOCK TABLE operator_sessions`.pipe(
              Effect.andThen(Deferred.succeed(isLocked, undefined)),
              Effect.andThen(Deferred.await(release))
            )
          )
        }).pipe(Effect.provide(PgClient.layer({ url: database, maxConnections: 1 })), Effect.forkScoped)
        yield* Deferred.await(isLocked)

        const answer = yield* ask(restarted, id)
        assert.strictEqual(answer.status, 503)
        assert.match(answer.json.detail, /the database does not answer.*nobody is signed out by it/)
        assert.match(answer.headers.get("retry-after") ?? "", /^\d+$/)
        for (const path of ["/console", "/openapi.json", "/health/live"]) {
          assert.strictEqual((yield* ask(patient, id, "GET", path)).status, 200, path)
        }
        // The look of the first process is too old by now, and the next one fails.
        yield* Effect.sleep(short.cacheMillis)
        assert.strictEqual(yield* statusOf(first, id), 200)
        yield* Deferred.succeed(release, undefined)
        yield* Fiber.join(lock)
        assert.strictEqual(yield* statusOf(restarted, id), 200)
      }).pipe(Effect.scoped)
  )
})

/** A process of its own, as far as sessions go. */
const process = Sessions.make([both.adminToken])
const isAlive = (id: string) =>
  Effect.flatMap(process, ({ ownerOf }) => Effect.map(ownerOf([id]), (found) => found !== undefined))

layer(TestDatabase.layerPool, { excludeTestServices: true })("the limits of sessions", (it) => {
  it.effect("a session ends after half a day without a request, and after a week with them", () =>
    Effect.gen(function* () {
      yield* DatabaseClock.install
      const { begin } = yield* process
      const [idle, busy] = [yield* begin(both.adminToken), yield* begin(both.adminToken)]
      yield* DatabaseClock.advance("11 hours")
      assert.isTrue(yield* isAlive(busy))
      yield* DatabaseClock.advance("1 hour")
      assert.deepStrictEqual([yield* isAlive(idle), yield* isAlive(busy)], [false, true])
      for (let hours = 12; hours < 7 * 24 - 6; hours += 6) {
        yield* DatabaseClock.advance("6 hours")
        assert.isTrue(yield* isAlive(busy), `${hours} h`)
      }
      yield* DatabaseClock.advance("6 hours")
      assert.isFalse(yield* isAlive(busy))
    })
  )

  it.effect("there are a hundred sessions at most: the one that was used longest ago makes room", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`DELETE FROM operator_sessions`
      const { begin } = yield* process
      const ids = yield* Effect.forEach(Array.from({ length: Sessions.maxSessions }), () => begin(both.adminToken))
      yield* DatabaseClock.advance("2 minutes")
      assert.isTrue(yield* isAlive(ids[0]!))
      yield* begin(both.adminToken)
      const { ownerOf } = yield* process
      const alive = yield* Effect.filter(ids, (id) => Effect.map(ownerOf([id]), (found) => found !== undefined))
      assert.deepStrictEqual(
        ids.filter((id) => !alive.includes(id)),
        [ids[1]!]
      )
    })
  )

  it.effect("who signs in again and again ends no session of anybody else", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`DELETE FROM operator_sessions`
      const wall: ApiKeys.ApiKey = { ...both.adminToken, name: "wall", scope: "viewer", digest: Buffer.from("wall") }
      const { begin } = yield* Sessions.make([both.adminToken, wall])
      const operators = [yield* begin(both.adminToken), yield* begin(both.adminToken)]
      yield* DatabaseClock.advance("2 minutes")
      for (let number = 0; number < Sessions.maxSessions + 4; number++) yield* begin(wall)
      // A credential that is new gets in, too.
      operators.push(yield* begin(both.adminToken))
      assert.deepStrictEqual(yield* Effect.forEach(operators, isAlive), [true, true, true])
      assert.lengthOf(yield* sql`SELECT digest FROM operator_sessions`, Sessions.maxSessions)
    })
  )

  it.effect(
    "requests of known sessions look once in five seconds, and write once a minute; made-up ids are not looked up each",
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        let [looks, writes] = [0, 0]
        const counting = new Proxy(sql, {
          apply: (target, self, args: [TemplateStringsArray, ...Array<unknown>]) => {
            if (/^\s*SELECT digest, extract/.test(args[0][0] ?? "")) looks++
            if (/^\s*UPDATE/.test(args[0][0] ?? "")) writes++
            return Reflect.apply(target as never, self, args)
          }
        })
        const { begin, ownerOf } = yield* Effect.provideService(process, SqlClient.SqlClient, counting)
        const id = yield* begin(both.adminToken)
        yield* DatabaseClock.advance("2 minutes")
        for (let n = 0; n < 50; n++) assert.isDefined(yield* ownerOf([id]))
        assert.deepStrictEqual([looks, writes], [1, 1])
        const madeUp = Array.from({ length: 200 }, (_, n) => String(n).padStart(43, "x"))
        yield* Effect.forEach(madeUp, (one) => ownerOf([one]), { concurrency: "unbounded" })
        yield* Effect.forEach(["", "short", "x".repeat(10_000)], (one) => ownerOf([one]))
        assert.isAtMost(looks, 3)
      })
  )
})
