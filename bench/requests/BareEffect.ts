/**
 * The smallest server of Effect for the same requests: its router, driver and transactions, and no API, schema, check or span. Its cost beside
 * plain code is Effect's part of ours. It uses the tables of PlainServer.js.
 */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer, Redacted } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { randomUUID } from "node:crypto"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import { answer } from "../outside/Child.ts"

interface NewOrder {
  readonly customerId: string
  readonly currency: string
  readonly lines: ReadonlyArray<{ readonly sku: string; readonly quantity: number; readonly unitAmountMinor: number }>
}

const place = (sql: PgClient.PgClient) =>
  Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ json }) =>
    Effect.flatMap(json, (body) => {
      // A bare server checks nothing: that is what it is measured for.
      const { currency, customerId, lines } = body as unknown as NewOrder
      const id = randomUUID()
      const total = lines.reduce((sum, { quantity, unitAmountMinor }) => sum + quantity * unitAmountMinor, 0)
      const order = { id, customerId, currency, status: "pending", version: 1, totalAmountMinor: total, lines }
      const inserts = Effect.gen(function* () {
        yield* sql`INSERT INTO plain_orders VALUES (${id}::uuid, ${customerId}, ${currency}, 'pending', 1, ${BigInt(total)}, clock_timestamp(), clock_timestamp())`
        yield* sql`
          INSERT INTO plain_lines SELECT ${id}::uuid, ordinality, sku, quantity, amount
          FROM unnest(${lines.map(({ sku }) => sku)}::text[], ${lines.map(({ quantity }) => quantity)}::int[],
                      ${lines.map(({ unitAmountMinor }) => BigInt(unitAmountMinor))}::bigint[])
                 WITH ORDINALITY AS line(sku, quantity, amount, ordinality)`
        yield* sql`INSERT INTO plain_outbox VALUES (${randomUUID()}::uuid, 'orders', ${id}, 'OrderPlaced', ${JSON.stringify(order)}::text::json, clock_timestamp())`
      })
      return Effect.as(sql.withTransaction(inserts), HttpServerResponse.jsonUnsafe(order, { status: 201 }))
    })
  )

const read = (sql: PgClient.PgClient) =>
  Effect.flatMap(HttpRouter.params, ({ id = "" }) =>
    Effect.gen(function* () {
      const [order] = yield* sql<{
        readonly total_amount_minor: bigint
      }>`SELECT * FROM plain_orders WHERE id = ${id}::uuid`
      const lines = yield* sql<{ readonly unit_amount_minor: bigint }>`
        SELECT sku, quantity, unit_amount_minor::float8 FROM plain_lines WHERE order_id = ${id}::uuid ORDER BY position`
      return HttpServerResponse.jsonUnsafe({
        ...order,
        total_amount_minor: Number(order?.total_amount_minor),
        lines
      })
    })
  )

const routes = HttpRouter.use((router) =>
  Effect.flatMap(PgClient.PgClient, (sql) =>
    Effect.all([
      router.add("GET", "/health/live", HttpServerResponse.jsonUnsafe({ status: "live" })),
      router.add("GET", "/orders/:id", read(sql)),
      router.add("POST", "/orders", place(sql))
    ])
  )
)

const node = Http.createServer()
const server = HttpRouter.serve(routes, { disableLogger: true, disableListenLog: true }).pipe(
  // As many connections as the service's pool.
  Layer.provide(PgClient.layer({ url: Redacted.make(process.env["DATABASE_URL"] ?? ""), maxConnections: 16 })),
  Layer.provide(NodeHttpServer.layer(() => node, { port: 0, host: "127.0.0.1" }))
)

answer({
  listen: async () => {
    Effect.runFork(Layer.launch(server))
    await new Promise((resolve) => node.once("listening", resolve))
    return `http://127.0.0.1:${(node.address() as AddressInfo).port}`
  }
})
