/**
 * `bench pay`: POST /orders/{id}/pay over HTTP, with its events, without them, and with the smallest possible event rows. For comparison
 * the same SQL runs on plain connections, and behind `node:http` with the same gateway. Each runs with clients that use all cores. The three outboxes run
 * at a pace that leaves cores idle, too.
 *
 * One service process serves all kinds (OutboxKind.ts). It has no dispatcher, and its gateway answers at once. The SQL is recorded from one
 * run of the use case.
 */
import { PgConnection } from "@effect/sql-pg"
import { Effect, Layer, Random, Redacted } from "effect"
import { Statement } from "effect/sql"
import { randomUUID } from "node:crypto"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import * as Path from "node:path"
import { Gateway, GatewaySettings } from "../src/application/Gateway.ts"
import { Idempotency, IdempotencyKey } from "../src/application/Idempotency.ts"
import { Orders } from "../src/application/Orders.ts"
import { PaymentOutcomes } from "../src/application/PaymentOutcomes.ts"
import { Payments } from "../src/application/Payments.ts"
import { PayOrder } from "../src/application/PayOrder.ts"
import { PlaceOrder } from "../src/application/PlaceOrder.ts"
import * as ServiceProcess from "../src/cli/ServiceProcess.ts"
import { CustomerId, type OrderId } from "../src/domain/Ids.ts"
import { Currency } from "../src/domain/Money.ts"
import { Sku } from "../src/domain/OrderLines.ts"
import { PaymentMethod } from "../src/domain/Payment.ts"
import { generator } from "../src/platform/Ids.ts"
import { RandomUuid } from "../src/platform/RandomUuid.ts"
import { Tasks } from "../src/tasks/Tasks.ts"
import { TaskWakeup } from "../src/tasks/TaskWakeup.ts"
import { TestDatabase } from "../test/support/TestDatabase.ts"
import { Environment, Side } from "./Environment.ts"
import { interval, quantile, show, spread, table } from "./Figures.ts"
import { outboxKindOf, outboxKinds, type OutboxKind } from "./OutboxKind.ts"
import * as Child from "./outside/Child.ts"
import * as Contenders from "./outside/Contenders.ts"
import * as Recorded from "./requests/RecordedPayment.ts"
import * as Service from "./Service.ts"

/** A gateway that captures every charge at once. */
const gatewayUrl = Effect.map(
  Effect.acquireRelease(
    Effect.promise(
      () =>
        new Promise<Http.Server>((resolve) => {
          const server = Http.createServer((request, response) => {
            request.resume()
            request.on("end", () => {
              response.setHeader("content-type", "application/json").end('{"status":"captured"}')
            })
          })
          server.listen(0, "127.0.0.1", () => resolve(server))
        })
    ),
    (server) =>
      Effect.sync(() => {
        server.close()
        server.closeAllConnections()
      })
  ),
  (server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`
)

const application = Layer.mergeAll(PlaceOrder.layer, PayOrder.layer).pipe(
  Layer.provideMerge(PaymentOutcomes.layer),
  Layer.provideMerge(
    Layer.mergeAll(
      Orders.layer,
      Payments.layer,
      Idempotency.layer,
      Tasks.layer,
      Layer.mock(Gateway, { charge: () => Effect.succeed({ _tag: "Captured" }) })
    )
  ),
  Layer.provideMerge(TaskWakeup.layer),
  Layer.provideMerge(Layer.succeed(GatewaySettings, { url: "", timeoutMillis: 5_000, keyRetentionMillis: 86_400_000 })),
  Layer.provideMerge(Service.writer)
)

const place = (number: number) =>
  PlaceOrder.use(({ place }) =>
    place(
      {
        customerId: CustomerId.make(`customer-${number % 100}`),
        currency: Currency.make("EUR"),
        lines: [
          { sku: Sku.make("book"), quantity: 2, unitAmountMinor: 1_250 },
          { sku: Sku.make("pen"), quantity: 1, unitAmountMinor: 99 }
        ]
      },
      undefined
    )
  )

/** Placing is not measured: enough clients to keep the cores busy. */
const placingSideBySide = 16

/** Orders to pay, of the given kind. */
const placing = Effect.sync(() => {
  const placed: Record<OutboxKind, Array<OrderId>> = { ours: [], none: [], barest: [] }
  const place16 = Effect.forEach(Array.from({ length: placingSideBySide }), (_, number) => place(number), {
    concurrency: placingSideBySide
  })
  return Effect.fnUntraced(function* (kind: OutboxKind, count: number) {
    while (placed[kind].length < count) {
      for (const { orderId } of yield* place16) placed[outboxKindOf(orderId)].push(orderId)
    }
    return placed[kind].splice(0, count)
  })
})

/** The statements of one payment, with the order and the payment in their parameters. */
const record = Effect.gen(function* () {
  const { orderId } = yield* place(0)
  const statements: Array<Recorded.Statement> = []
  const key = "recorded"
  const result = yield* PayOrder.use(({ pay }) =>
    pay(orderId, PaymentMethod.make("pm_ok"), {
      caller: "anonymous",
      method: "POST",
      path: `/orders/${orderId}/pay`,
      key: IdempotencyKey.make(key),
      body: { paymentMethod: "pm_ok" }
    })
  ).pipe(
    Effect.provideService(Statement.CurrentTransformer, (statement) =>
      Effect.sync(() => {
        const [sql, params] = statement.compile()
        statements.push({ sql, params })
        return statement
      })
    )
  )
  return { statements, orderId, paymentId: result.paymentId } satisfies Recorded.RecordedPayment
})

const ids = generator(Date.now, randomUUID)

/** The recorded transactions for another order, with new ids. */
const replay = (connection: PgConnection.PgConnection, recorded: Recorded.RecordedPayment, orderId: OrderId) =>
  Effect.forEach(
    Recorded.transactionsOf(recorded, orderId, ids.next),
    Effect.fnUntraced(function* (statements) {
      yield* connection.query("BEGIN")
      for (const { params, sql } of statements) yield* connection.query(sql, params)
      yield* connection.query("COMMIT")
    }),
    { discard: true }
  )

/** The clients take the orders one by one. Returns the times, and payments a second. */
const block = <E>(
  clients: number,
  orders: ReadonlyArray<OrderId>,
  one: (client: number, id: OrderId) => Effect.Effect<void, E>
) =>
  Effect.gen(function* () {
    const millis: Array<number> = []
    let next = 0
    const began = performance.now()
    yield* Effect.forEach(
      Array.from({ length: clients }, (_, client) => client),
      (client) =>
        Effect.gen(function* () {
          while (next < orders.length) {
            const id = orders[next++]!
            const started = performance.now()
            yield* one(client, id)
            millis.push(performance.now() - started)
          }
        }),
      { concurrency: clients, discard: true }
    )
    return {
      perSecond: orders.length / ((performance.now() - began) / 1_000),
      p50: quantile(millis, 0.5),
      p99: quantile(millis, 0.99)
    }
  })

/**
 * Payments at a steady pace, with all kinds mixed, so that a noisy moment hits all of them. Returns the times of each kind. Their order is
 * drawn anew in each round, because a payment also waits for the work that the one before it has left.
 */
const paced = <E>(
  perSecond: number,
  orders: Readonly<Record<OutboxKind, ReadonlyArray<OrderId>>>,
  one: (id: OrderId) => Effect.Effect<void, E>
) =>
  Effect.gen(function* () {
    const millis: Record<OutboxKind, Array<number>> = { ours: [], none: [], barest: [] }
    const turns: Array<readonly [OutboxKind, OrderId]> = []
    for (let turn = 0; turn < orders.ours.length; turn++) {
      for (const kind of yield* Random.shuffle(outboxKinds)) turns.push([kind, orders[kind][turn]!])
    }
    yield* Effect.forEach(
      turns,
      ([kind, id], index) =>
        Effect.gen(function* () {
          yield* Effect.sleep((index * 1_000) / perSecond)
          const started = performance.now()
          yield* one(id)
          millis[kind].push(performance.now() - started)
        }),
      { concurrency: "unbounded", discard: true }
    )
    return millis
  })

/** The service without a dispatcher, with all three outboxes. */
const start = Effect.fnUntraced(function* (gateway: string) {
  const { databaseUrl } = yield* Environment
  return yield* ServiceProcess.start({
    roles: "http",
    env: {
      DATABASE_URL: Redacted.value(databaseUrl),
      DATA_DIRECTORY: yield* TestDatabase.dataDirectory,
      PORT: "0",
      LOG_LEVEL: "Error",
      GATEWAY_URL: gateway,
      NODE_OPTIONS: Contenders.nodeOptions
    },
    script: Path.join(import.meta.dirname, "mixedOutbox.ts")
  })
})

/** The same statements behind `node:http`, with the same gateway. */
const startPlain = Effect.fnUntraced(function* (gateway: string, recorded: Recorded.RecordedPayment) {
  const { databaseUrl } = yield* Environment
  const { call } = yield* Child.start(Path.join(import.meta.dirname, "peers/PlainPay.js"), {
    DATABASE_URL: Redacted.value(databaseUrl),
    NODE_OPTIONS: Contenders.nodeOptions
  })
  return yield* call<string>("listen", { gateway, recorded })
})

/** Pays an order by HTTP on a kept connection. */
const paying = (agent: Http.Agent, url: string | null) => (id: OrderId) =>
  Effect.promise(
    () =>
      new Promise<void>((resolve, reject) => {
        const request = Http.request(
          `${url}/orders/${id}/pay`,
          {
            method: "POST",
            agent,
            headers: { "content-type": "application/json", "idempotency-key": `pay-${id}` }
          },
          (response) => {
            response.resume()
            response.on("end", () =>
              response.statusCode === 200 ? resolve() : reject(new Error(`answered ${response.statusCode}`))
            )
          }
        )
        request.on("error", reject)
        request.end('{"paymentMethod":"pm_ok"}')
      })
  )

/** `rounds` times `payments` payments of each kind by `clients` clients; the kinds take turns. */
export const pay = Effect.fnUntraced(
  function* (options: {
    readonly rounds: number
    readonly payments: number
    readonly clients: number
    /** Payments a second in the paced runs. */
    readonly pace: number
  }) {
    const { clients, pace, payments } = options
    if (!Contenders.areInstalled())
      return yield* Effect.die(new Error("the peers are not installed: npm ci --prefix bench/peers"))
    const { databaseUrl } = yield* Environment
    const gateway = yield* gatewayUrl
    const service = yield* start(gateway)
    const side = yield* Side
    yield* side`CREATE TABLE bench_barest_outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, data text NOT NULL)`
    const recorded = yield* record
    const connections = yield* Effect.forEach(Array.from({ length: clients }), () =>
      PgConnection.make({ url: databaseUrl })
    )
    const agent = new Http.Agent({ keepAlive: true, maxSockets: clients })
    const post = paying(agent, service.url)
    const overHttp = (_: number, id: OrderId) => post(id)
    const postPlain = paying(agent, yield* startPlain(gateway, recorded))
    const placed = yield* placing
    const kinds = {
      overHttp: { outbox: "ours", one: overHttp },
      withoutEvents: { outbox: "none", one: overHttp },
      barest: { outbox: "barest", one: overHttp },
      plainHttp: { outbox: "ours", one: (_: number, id: OrderId) => postPlain(id) },
      plain: { outbox: "ours", one: (client: number, id: OrderId) => replay(connections[client]!, recorded, id) }
    } as const
    type Kind = keyof typeof kinds
    type Block = Effect.Success<ReturnType<typeof block>>
    const names = Object.keys(kinds) as Array<Kind>
    const round = Effect.gen(function* () {
      const blocks = {} as Record<Kind, Block>
      for (const kind of names) {
        const { one, outbox } = kinds[kind]
        blocks[kind] = yield* block(clients, yield* placed(outbox, payments), one)
      }
      // The kinds go first in turn: each leaves work to the next one.
      names.push(names.shift()!)
      const each = Math.ceil(payments / outboxKinds.length)
      const orders = {
        ours: yield* placed("ours", each),
        none: yield* placed("none", each),
        barest: yield* placed("barest", each)
      }
      const millis = yield* paced(pace, orders, post)
      return {
        ...blocks,
        paced: {
          overHttp: quantile(millis.ours, 0.5),
          withoutEvents: quantile(millis.none, 0.5),
          barest: quantile(millis.barest, 0.5)
        }
      }
    })
    yield* round
    const rounds = yield* Effect.forEach(Array.from({ length: options.rounds }), () => round)
    agent.destroy()
    const figures = (kind: Kind) => ({
      perSecond: spread(rounds.map((blocks) => blocks[kind].perSecond)),
      p50Millis: spread(rounds.map((blocks) => blocks[kind].p50)),
      p99Millis: spread(rounds.map((blocks) => blocks[kind].p99)),
      ofPlain: spread(rounds.map((blocks) => blocks[kind].perSecond / blocks.plain.perSecond))
    })
    return {
      workload: { ...options, statements: recorded.statements.length },
      overHttp: figures("overHttp"),
      withoutEvents: figures("withoutEvents"),
      barest: figures("barest"),
      plainHttp: figures("plainHttp"),
      plain: figures("plain"),
      /** The factor by which the request's events raise its p50, within each round. */
      eventsFactor: {
        busy: interval(rounds.map((blocks) => blocks.overHttp.p50 / blocks.withoutEvents.p50)),
        busyBarest: interval(rounds.map((blocks) => blocks.barest.p50 / blocks.withoutEvents.p50)),
        paced: interval(rounds.map(({ paced }) => paced.overHttp / paced.withoutEvents)),
        pacedBarest: interval(rounds.map(({ paced }) => paced.barest / paced.withoutEvents)),
        pacedP50Millis: spread(rounds.map(({ paced }) => paced.withoutEvents))
      }
    }
  },
  Effect.provide(application.pipe(Layer.provide(Layer.succeed(RandomUuid, randomUUID)), Layer.fresh)),
  Effect.scoped
)

/** The result for a reader. */
export const print = ({
  barest,
  eventsFactor,
  overHttp,
  plain,
  plainHttp,
  withoutEvents,
  workload
}: Effect.Success<ReturnType<typeof pay>>): string =>
  [
    `${workload.rounds} rounds of ${workload.payments} payments, ${workload.clients} clients; ${workload.statements} statements in two transactions each: median of the rounds (least … most)`,
    "",
    table(
      ["", "payments/s", "p50 ms", "p99 ms", "of plain"],
      [
        { name: "POST /orders/{id}/pay", figures: overHttp },
        { name: "the same without its events", figures: withoutEvents },
        { name: "the same with the barest rows", figures: barest },
        { name: "the same SQL and gateway behind node:http, by pg", figures: plainHttp },
        { name: "the same SQL, plain connections", figures: plain }
      ].map(({ figures, name }) => [
        name,
        show(figures.perSecond, 0),
        show(figures.p50Millis, 2),
        show(figures.p99Millis, 1),
        show(figures.ofPlain, 2)
      ])
    ),
    "",
    `p50 beside that without events (in brackets: where the median is, with 95 % confidence)`,
    `  ${workload.clients} clients: with its events ${show(eventsFactor.busy, 3)}, with the barest rows ${show(eventsFactor.busyBarest, 3)}`,
    `  ${workload.pace} payments/s of all three mixed, ${show(eventsFactor.pacedP50Millis, 2)} ms without: with its events ${show(eventsFactor.paced, 3)}, with the barest rows ${show(eventsFactor.pacedBarest, 3)}`
  ].join("\n")
