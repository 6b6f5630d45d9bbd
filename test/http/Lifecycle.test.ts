/** The server's life: a start on a taken port, answers while the database is down, and the stop. */
import { assert, layer } from "@effect/vitest"
import { Context, Duration, Effect, Exit, Fiber, Layer, Redacted, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { connect } from "node:net"
import { Readiness } from "../../src/http/Health.ts"
import * as HttpServer from "../../src/http/HttpServer.ts"
import { eventually } from "../support/Counters.ts"
import * as TcpProxy from "../support/TcpProxy.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import { anyPort, newOrder, send, underHttpOn } from "./Service.ts"

/** The proxy between the service and its database. */
class Wire extends Context.Service<Wire, TcpProxy.TcpProxy>()("test/Wire") {}

const databaseBehindWire = Layer.effectContext(
  Effect.gen(function* () {
    const direct = yield* TestDatabase.make()
    const url = new URL(Redacted.value(direct.url))
    const wire = yield* TcpProxy.make({ upstream: { host: url.hostname, port: Number(url.port) } })
    url.hostname = wire.host
    url.port = String(wire.port)
    return Context.make(TestDatabase, { name: direct.name, url: Redacted.make(url.toString()) }).pipe(
      Context.add(Wire, wire)
    )
  })
)

/** A server of its own, in a scope that the test closes. */
const startServer = (settings: Partial<typeof anyPort> = {}) =>
  Effect.gen(function* () {
    const scope = yield* Effect.acquireRelease(Scope.make(), (scope) => Scope.close(scope, Exit.void))
    const fresh = Layer.fresh(
      HttpServer.layer.pipe(
        Layer.provide(Layer.succeed(HttpServer.HttpSettings, { ...anyPort, ...settings })),
        Layer.provideMerge(Readiness.layer)
      )
    )
    const context = yield* Layer.buildWithScope(fresh, scope)
    return {
      ...Context.get(context, HttpServer.BoundAddress),
      readiness: Context.get(context, Readiness),
      close: Scope.close(scope, Exit.void)
    }
  })

/** Waits, in a transaction that has locked a row, until another session waits for the row. */
const untilWaiting = (sql: SqlClient.SqlClient) =>
  eventually(
    "a request to wait for the row",
    // A transaction sees the first snapshot of this view, unless it is cleared.
    Effect.andThen(
      sql`SELECT pg_stat_clear_snapshot()`,
      sql`SELECT 1 AS one FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
    ).pipe(Effect.map((rows) => rows.length > 0))
  )

layer(Layer.provideMerge(underHttpOn(databaseBehindWire), TestProcess.quiet), { excludeTestServices: true })(
  "HTTP server",
  (it) => {
    it.effect("a port that is taken refuses the start with one line that names PORT", () =>
      Effect.gen(function* () {
        const { port } = yield* startServer()
        const error = yield* Effect.flip(startServer({ port }))
        assert.strictEqual(error._tag, "ListenFailed")
        assert.strictEqual(
          error.message,
          `PORT: can't listen on 127.0.0.1:${port}: the port is in use; stop what listens there, or choose another (0 picks a free one)`
        )
        const elsewhere = yield* Effect.flip(startServer({ host: "192.0.2.1" }))
        assert.match(elsewhere.message, /^HOST: /)
      })
    )

    it.effect(
      "without the database requests get 503 with Retry-After, and the service is unready; then it recovers",
      () =>
        Effect.gen(function* () {
          const { url } = yield* startServer()
          const wire = yield* Wire
          const id = (yield* send(`${url}/orders`, { body: newOrder })).json.id
          yield* wire.refuse
          yield* wire.reset
          for (const [path, init] of [
            ["/orders", { body: newOrder }],
            [`/orders/${id}`, {}],
            ["/orders", {}]
          ] as const) {
            const answer = yield* send(`${url}${path}`, init)
            assert.deepStrictEqual(
              [answer.status, answer.headers.get("content-type")],
              [503, "application/problem+json"],
              answer.text
            )
            assert.strictEqual(answer.headers.get("retry-after"), "2")
            assert.notMatch(answer.text, /127\.0\.0\.1|postgres|PgConnection/i)
          }
          const ready = yield* send(`${url}/health/ready`)
          assert.deepStrictEqual(
            [ready.status, ready.json.status, ready.json.parts.database.status],
            [503, "unready", "unready"]
          )
          assert.strictEqual((yield* send(`${url}/health/live`)).status, 200)
          yield* wire.pass
          yield* send(`${url}/orders/${id}`).pipe(
            Effect.repeat({ until: ({ status }) => status === 200 }),
            Effect.timeout("20 seconds")
          )
          assert.strictEqual((yield* send(`${url}/orders`, { body: newOrder })).status, 201)
        })
    )

    it.effect("a defect is 500 with its trace id and no internals", () =>
      Effect.gen(function* () {
        const { url } = yield* startServer()
        const sql = yield* SqlClient.SqlClient
        yield* sql`ALTER TABLE payments RENAME TO payments_elsewhere`
        const answer = yield* send(`${url}/payments/01890a5d-ac96-774b-bcce-b302099a8057`)
        yield* sql`ALTER TABLE payments_elsewhere RENAME TO payments`
        assert.deepStrictEqual([answer.status, answer.headers.get("content-type")], [500, "application/problem+json"])
        assert.match(answer.json.traceId, /^[0-9a-f]{32}$/)
        assert.notMatch(answer.text, /payments|relation|select/i)
      })
    )

    it.effect("draining turns ready into unready; requests are still served, and end their connections", () =>
      Effect.gen(function* () {
        const { readiness, url } = yield* startServer()
        yield* readiness.drain
        const ready = yield* send(`${url}/health/ready`)
        assert.deepStrictEqual(
          [ready.status, ready.json.status, ready.headers.get("connection")],
          [503, "unready", "close"]
        )
        assert.strictEqual((yield* send(`${url}/orders`, { body: newOrder })).status, 201)
      })
    )

    it.effect("the port of a process without requests reports its start, its work and its end", () =>
      Effect.gen(function* () {
        const health = HttpServer.layerHealth.pipe(
          Layer.provide(Layer.succeed(HttpServer.HttpSettings, anyPort)),
          Layer.provideMerge(Readiness.layer),
          Layer.fresh
        )
        const context = yield* Layer.build(health)
        const { url } = Context.get(context, HttpServer.BoundAddress)
        const ready = Effect.map(send(`${url}/health/ready`), ({ headers, json, status }) => [
          status,
          Object.keys(json.parts).filter((name) => json.parts[name].status === "unready"),
          headers.get("connection")
        ])
        assert.deepStrictEqual(yield* ready, [503, ["start"], "keep-alive"])
        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* Effect.provide(Layer.build(Readiness.layerWorking), context)
            assert.deepStrictEqual(yield* ready, [200, [], "keep-alive"])
          })
        )
        assert.deepStrictEqual(yield* ready, [503, ["shutdown"], "close"])
      })
    )

    it.effect("closing refuses new connections, and answers the request that is under way", () =>
      Effect.gen(function* () {
        const { close, readiness, url } = yield* startServer({ graceMillis: 60_000 })
        const sql = yield* SqlClient.SqlClient
        const id = (yield* send(`${url}/orders`, { body: newOrder })).json.id
        const [underWay, closing] = yield* sql.withTransaction(
          Effect.gen(function* () {
            yield* sql`SELECT 1 FROM orders WHERE id = ${id}::uuid FOR UPDATE`
            const paying = yield* Effect.forkDetach(
              send(`${url}/orders/${id}/pay`, {
                body: { paymentMethod: "pm_ok" },
                headers: { "idempotency-key": "closing" }
              })
            )
            yield* untilWaiting(sql)
            const closing = yield* Effect.forkDetach(close)
            yield* Effect.sync(readiness.phaseUnsafe).pipe(
              Effect.tap(Effect.sleep(10)),
              Effect.repeat({ until: (phase) => phase === "draining" })
            )
            yield* eventually(
              "new connections to be refused",
              Effect.map(Effect.exit(send(`${url}/health/live`)), Exit.isFailure)
            )
            return [paying, closing] as const
          })
        )
        const answer = yield* Fiber.join(underWay)
        assert.deepStrictEqual([answer.status, answer.headers.get("connection")], [200, "close"])
        yield* Fiber.join(closing)
      })
    )

    it.effect("a client that hangs up ends its request and nothing else", () =>
      Effect.gen(function* () {
        const { url } = yield* startServer()
        const sql = yield* SqlClient.SqlClient
        const id = (yield* send(`${url}/orders`, { body: newOrder })).json.id
        yield* sql.withTransaction(
          Effect.gen(function* () {
            yield* sql`SELECT 1 FROM orders WHERE id = ${id}::uuid FOR UPDATE`
            const client = new AbortController()
            const request = fetch(`${url}/orders/${id}/pay`, {
              method: "POST",
              body: '{"paymentMethod":"pm_ok"}',
              headers: { "content-type": "application/json", "idempotency-key": "gone" },
              signal: client.signal
            }).catch(() => undefined)
            yield* untilWaiting(sql)
            client.abort()
            yield* Effect.promise(() => request)
            yield* send(`${url}/metrics`).pipe(
              Effect.repeat({ until: ({ text }) => text.includes('route="/orders/:id/pay",status="aborted"} 1') }),
              Effect.timeout("60 seconds")
            )
          })
        )
        // The intent was rolled back with the request, so the key is free.
        const paid = yield* send(`${url}/orders/${id}/pay`, {
          body: { paymentMethod: "pm_ok" },
          headers: { "idempotency-key": "gone" }
        })
        assert.strictEqual(paid.status, 200)
      })
    )

    it.effect("a stop does not wait longer than its grace for a client that has stopped sending", () =>
      Effect.gen(function* () {
        const { close, port } = yield* startServer({ graceMillis: 200 })
        const socket = connect(port, "127.0.0.1")
        const gone = new Promise<void>((resolve) => socket.on("close", () => resolve()))
        socket.on("error", () => {})
        socket.write(
          "POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        yield* Effect.sleep(100)
        const [took] = yield* Effect.timed(close)
        yield* Effect.promise(() => gone)
        // Without the grace it would wait for ever; a busy machine takes some tenths of a second.
        assert.isBelow(Duration.toMillis(took), 20_000)
      })
    )
  }
)
