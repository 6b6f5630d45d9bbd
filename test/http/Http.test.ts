import { assert, layer } from "@effect/vitest"
import { Effect, SubscriptionRef } from "effect"
import { SqlClient } from "effect/sql"
import { Broker } from "../../src/brokers/Broker.ts"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import { GatewayServer } from "../../src/sandbox/GatewayServer.ts"
import { type Answer, newOrder, send, service } from "./Service.ts"

const place = Effect.gen(function* () {
  const { url } = yield* BoundAddress
  const answer = yield* send(`${url}/orders`, { body: newOrder })
  assert.strictEqual(answer.status, 201)
  return answer.json.id as string
})

const pay = (id: string, key: string, paymentMethod = "pm_ok") =>
  Effect.flatMap(BoundAddress, ({ url }) =>
    send(`${url}/orders/${id}/pay`, { body: { paymentMethod }, headers: { "idempotency-key": key } })
  )

const get = (path: string) => Effect.flatMap(BoundAddress, ({ url }) => send(`${url}${path}`))

/** How often the gateway captured money, over all keys. */
const captures = Effect.gen(function* () {
  const { url } = yield* GatewayServer
  const { json } = yield* send(`${url}/ledger`)
  return json.totals.reduce((sum: number, total: { captured: number }) => sum + total.captured, 0) as number
})

const missing = "01890a5d-ac96-774b-bcce-b302099a8057"

layer(service, { excludeTestServices: true })("HTTP", (it) => {
  it.effect("an order is placed, found under its Location, listed, and announced", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const placed = yield* send(`${url}/orders`, { body: newOrder })
      assert.strictEqual(placed.status, 201)
      assert.strictEqual(placed.headers.get("content-type"), "application/json")
      assert.strictEqual(placed.headers.get("location"), `/orders/${placed.json.id}`)
      const { createdAt, id, updatedAt, ...rest } = placed.json
      assert.deepStrictEqual(rest, { ...newOrder, status: "pending", version: 1, totalAmountMinor: 2_599 })
      assert.match(createdAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
      assert.strictEqual(updatedAt, createdAt)
      const found = yield* get(`/orders/${id}`)
      assert.deepStrictEqual([found.status, found.json], [200, placed.json])
      assert.deepStrictEqual((yield* get(`/orders/${id.toUpperCase()}`)).json, placed.json)
      const { lines: _, ...listed } = placed.json
      assert.deepStrictEqual((yield* get("/orders?limit=1")).json.items, [listed])
      const timeline = yield* get(`/orders/${id.toUpperCase()}/timeline`)
      assert.strictEqual(timeline.json.complete, true)
      const [event] = timeline.json.events
      assert.deepStrictEqual([event.type, event.version, event.delivery.state], ["OrderPlaced", 1, "queued"])
      assert.deepStrictEqual(event.consumers, { analytics: "pending" })
    })
  )

  it.effect("the trace of a request travels with its events", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const sql = yield* SqlClient.SqlClient
      const traceId = "4bf92f3577b34da6a3ce929d0e0e4736"
      const { json } = yield* send(`${url}/orders`, {
        body: newOrder,
        headers: { traceparent: `00-${traceId}-00f067aa0ba902b7-01` }
      })
      const rows = yield* sql`SELECT trace_id FROM outbox_events WHERE aggregate_id = ${json.id}`
      assert.deepStrictEqual(rows, [{ trace_id: traceId }])
    })
  )

  it.effect("a missing order or payment is 404", () =>
    Effect.gen(function* () {
      for (const path of [`/orders/${missing}`, `/orders/${missing}/timeline`, `/payments/${missing}`]) {
        const answer = yield* get(path)
        assert.deepStrictEqual([answer.status, answer.headers.get("content-type")], [404, "application/problem+json"])
        assert.include(answer.json.detail, missing)
      }
      assert.strictEqual((yield* pay(missing, "m1")).status, 404)
    })
  )

  it.effect("the same key places one order, however its body is written, and refuses another body", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const headers = { "idempotency-key": "place-1" }
      const first = yield* send(`${url}/orders`, { body: newOrder, headers })
      assert.strictEqual(first.status, 201)
      const { currency, customerId, lines } = newOrder
      const spelt = JSON.stringify(
        {
          lines: lines.map(({ quantity, sku, unitAmountMinor }) => ({ unitAmountMinor, sku, quantity })),
          currency,
          customerId
        },
        null,
        4
      )
      for (const body of [newOrder, spelt]) {
        const again = yield* send(`${url}/orders`, { body, headers })
        assert.deepStrictEqual([again.status, again.text], [201, first.text])
        assert.strictEqual(again.headers.get("location"), first.headers.get("location"))
      }
      const other = yield* send(`${url}/orders`, { body: { ...newOrder, customerId: "else" }, headers })
      assert.deepStrictEqual([other.status, other.json.errors[0].in], [422, "header"])
      const sql = yield* SqlClient.SqlClient
      assert.deepStrictEqual(
        yield* sql`SELECT count(*)::int4 AS n FROM idempotency_keys WHERE idempotency_key = 'place-1'`,
        [{ n: 1 }]
      )
    })
  )

  it.effect("twenty equal orders at once with one key are one order", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const answers = yield* Effect.all(
        Array.from({ length: 20 }, () =>
          send(`${url}/orders`, { body: newOrder, headers: { "idempotency-key": "place-20" } })
        ),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size, 1)
      assert.strictEqual(answers[0]!.status, 201)
    })
  )

  it.effect("an order is paid once; the same key gets the same bytes again, another key 409", () =>
    Effect.gen(function* () {
      const id = yield* place
      const before = yield* captures
      const paid = yield* pay(id, "pay-1")
      assert.deepStrictEqual([paid.status, paid.json.status, paid.json.version], [200, "paid", 2])
      assert.strictEqual(paid.headers.get("content-type"), "application/json")
      const again = yield* pay(id.toUpperCase(), "pay-1")
      assert.deepStrictEqual([again.status, again.text], [200, paid.text])
      assert.strictEqual((yield* pay(id, "pay-1", "pm_declined")).status, 422)
      const second = yield* pay(id, "pay-2")
      assert.strictEqual(second.status, 409)
      assert.strictEqual(yield* captures, before + 1)
      const events = (yield* get(`/orders/${id}/timeline`)).json.events
      assert.deepStrictEqual(
        events.map((event: { type: string }) => event.type),
        ["OrderPlaced", "OrderPaid"]
      )
      const sql = yield* SqlClient.SqlClient
      const [row] = yield* sql<{ id: string }>`SELECT id FROM payments WHERE order_id = ${id}::uuid`
      assert.deepStrictEqual((yield* get(`/payments/${row!.id}`)).json, {
        id: row!.id,
        orderId: id,
        status: "captured",
        amountMinor: 2_599,
        currency: "EUR",
        capturedMinor: 2_599,
        refundedMinor: 0
      })
    })
  )

  it.effect("a decline is a problem, kept for its key; then a new key may pay", () =>
    Effect.gen(function* () {
      const id = yield* place
      const declined = yield* pay(id, "d-1", "pm_declined")
      assert.deepStrictEqual([declined.status, declined.headers.get("content-type")], [402, "application/problem+json"])
      assert.deepStrictEqual([declined.json.reason, declined.json.status], ["insufficient funds", 402])
      assert.strictEqual((yield* pay(id, "d-1", "pm_declined")).text, declined.text)
      assert.strictEqual((yield* get(`/orders/${id}`)).json.status, "pending")
      assert.strictEqual((yield* get(`/payments/${declined.json.paymentId}`)).json.status, "declined")
      assert.strictEqual((yield* pay(id, "d-2")).status, 200)
    })
  )

  it.effect("twenty equal payments at once charge once; each hears 200 with the same bytes, or 409", () =>
    Effect.gen(function* () {
      const id = yield* place
      const before = yield* captures
      const answers = yield* Effect.all(
        Array.from({ length: 20 }, () => pay(id, "pay-20")),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(yield* captures, before + 1)
      const paid = answers.filter(({ status }) => status === 200)
      assert.isAtLeast(paid.length, 1)
      assert.strictEqual(new Set(paid.map(({ text }) => text)).size, 1)
      for (const answer of answers.filter(({ status }) => status !== 200)) {
        assert.deepStrictEqual([answer.status, answer.headers.get("retry-after")], [409, "1"])
      }
    })
  )

  it.effect("twenty payments with keys of their own charge once", () =>
    Effect.gen(function* () {
      const id = yield* place
      const before = yield* captures
      const answers = yield* Effect.all(
        Array.from({ length: 20 }, (_, n) => pay(id, `own-${n}`)),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        answers.map(({ status }) => status).toSorted((a, b) => a - b),
        [200, ...Array.from({ length: 19 }, () => 409)]
      )
      assert.strictEqual(yield* captures, before + 1)
    })
  )

  it.effect("the list pages through all orders, newest first, and filters by status", () =>
    Effect.gen(function* () {
      const ids = yield* Effect.replicateEffect(place, 5)
      yield* pay(ids[2]!, "list-1")
      const seen: Array<string> = []
      let cursor: string | null = null
      do {
        const page: Answer = yield* get(`/orders?limit=2${cursor === null ? "" : `&cursor=${cursor}`}`)
        seen.push(...page.json.items.map((order: { id: string }) => order.id))
        cursor = page.json.nextCursor
      } while (cursor !== null)
      assert.deepStrictEqual(seen.slice(0, 5), ids.toReversed())
      assert.deepStrictEqual(seen, [...new Set(seen)].toSorted().toReversed())
      assert.strictEqual((yield* get("/orders?status=paid&limit=1")).json.items[0].id, ids[2])
      const pending = yield* get("/orders?status=pending&limit=100")
      assert.notInclude(
        pending.json.items.map((order: { id: string }) => order.id),
        ids[2]
      )
    })
  )

  it.effect("a page of the list reads no lines, and is small however many lines its orders have", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const line = { sku: "s".repeat(100), quantity: 1, unitAmountMinor: 1 }
      const body = { ...newOrder, lines: Array.from({ length: 1_000 }, () => line) }
      for (let index = 0; index < 3; index++) {
        assert.strictEqual((yield* send(`${url}/orders`, { body })).status, 201)
      }
      const sql = yield* SqlClient.SqlClient
      // A statement that reads the table waits for this lock, and the list must not.
      const page = yield* sql.withTransaction(
        Effect.andThen(sql`LOCK TABLE order_lines IN ACCESS EXCLUSIVE MODE`, get("/orders?limit=3"))
      )
      assert.strictEqual(page.json.items.length, 3)
      assert.isBelow(page.text.length, 2_000)
    }).pipe(Effect.timeout("60 seconds"))
  )

  it.effect("openapi.json knows every route, and the documentation needs no network", () =>
    Effect.gen(function* () {
      const { json } = yield* get("/openapi.json")
      assert.match(json.openapi, /^3\.1/)
      const routes = Object.entries<object>(json.paths).flatMap(([path, methods]) =>
        Object.keys(methods).map((method) => `${method} ${path}`)
      )
      // AdminAccess.test.ts asks those under /admin.
      const ofCustomers = routes.filter((route) => !route.includes(" /admin/"))
      assert.isBelow(ofCustomers.length, routes.length)
      assert.sameMembers(ofCustomers, [
        "post /orders",
        "get /orders",
        "get /orders/{id}",
        "post /orders/{id}/pay",
        "post /orders/{id}/cancel",
        "post /orders/{id}/refund",
        "get /orders/{id}/timeline",
        "get /payments/{id}",
        "post /reports",
        "get /reports/{taskId}",
        "get /tasks/{id}",
        "post /webhooks/gateway",
        "get /health/live",
        "get /health/ready"
      ])
      const schemas = Object.keys(json.components.schemas)
      assert.deepStrictEqual(
        schemas.filter((name) => /_\d+$/.test(name)),
        []
      )
      assert.includeMembers(schemas, [
        "GatewayReport",
        "Health",
        "NewOrder",
        "Order",
        "OrderList",
        "OrderSummary",
        "Pay",
        "Payment",
        "PaymentDeclined",
        "PaymentPending",
        "Report",
        "ReportRange",
        "Problem",
        "Task",
        "Timeline"
      ])
      const docs = yield* get("/docs")
      assert.match(docs.headers.get("content-type")!, /^text\/html/)
      assert.notMatch(docs.text, /<(script|link|img|iframe)[^>]* (src|href)="https?:/)
      assert.include(docs.text, "Place an order")
    })
  )

  it.effect("an unavailable broker degrades the service and keeps it ready", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual((yield* get("/health/live")).json, { status: "live" })
      const ready = yield* get("/health/ready")
      assert.deepStrictEqual([ready.status, ready.json.status], [200, "ready"])
      assert.strictEqual(ready.json.parts["fiber:wake-ups"].status, "ready")
      const { available } = yield* Broker
      yield* SubscriptionRef.set(available, false)
      // An answer may be a second old.
      const degraded = yield* Effect.repeat(get("/health/ready"), { until: ({ json }) => json.status === "degraded" })
      assert.deepStrictEqual(
        [degraded.status, degraded.json.status, degraded.json.parts.broker.status],
        [200, "degraded", "degraded"]
      )
      yield* SubscriptionRef.set(available, true)
    })
  )

  it.effect("metrics are in Prometheus' text format, by route and not by path", () =>
    Effect.gen(function* () {
      const id = yield* place
      yield* get(`/orders/${id}`)
      yield* get("/some/where/else")
      const { headers, text } = yield* get("/metrics")
      assert.strictEqual(headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8")
      assert.match(text, /\n$/)
      for (const line of text.trimEnd().split("\n")) {
        assert.match(
          line,
          /^(# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? (\+Inf|-?[0-9.e+-]+))$/
        )
      }
      assert.match(text, /http_requests_total\{method="GET",route="\/orders\/:id",status="200"\} \d+/)
      assert.match(text, /http_requests_total\{method="GET",route="unmatched",status="404"\} \d+/)
      assert.notInclude(text, id)
      const buckets = [
        ...text.matchAll(/http_request_duration_seconds_bucket\{method="POST",route="\/orders",le="([^"]+)"\} (\d+)/g)
      ].map((match) => Number(match[2]))
      assert.deepStrictEqual(
        buckets,
        buckets.toSorted((a, b) => a - b)
      )
      assert.isAbove(buckets.at(-1)!, 0)
      for (const name of ["process_resident_memory_bytes", "process_uptime_seconds", "nodejs_eventloop_lag_seconds"]) {
        assert.match(text, new RegExp(`^${name} [0-9.e+-]+$`, "m"))
      }
    })
  )
})
