/**
 * `bench requests`: POST /orders, GET /orders/{id} and GET /health/live by some clients that keep their connections, beside the same over
 * `node:http` and `pg` alone, and over Effect's router and driver alone. Server and clients are processes of their own, and take turns.
 */
import { Effect, Redacted } from "effect"
import * as Path from "node:path"
import * as ServiceProcess from "../src/cli/ServiceProcess.ts"
import { TestDatabase } from "../test/support/TestDatabase.ts"
import * as Cpu from "./Cpu.ts"
import { Environment } from "./Environment.ts"
import { interval, quantile, show, spread, table } from "./Figures.ts"
import * as Child from "./outside/Child.ts"
import * as Contenders from "./outside/Contenders.ts"
import type { Row } from "./picture/Rows.ts"
import type { Answers, Load } from "./requests/Client.ts"

/** An order's body. */
export const order = JSON.stringify({
  customerId: "customer-1",
  currency: "EUR",
  lines: [
    { sku: "book", quantity: 2, unitAmountMinor: 1_250 },
    { sku: "pen", quantity: 1, unitAmountMinor: 99 }
  ]
})

type Request = Pick<Load, "method" | "path" | "body">
const place: Request = { method: "POST", path: "/orders", body: order }
const live: Request = { method: "GET", path: "/health/live" }

interface Server {
  readonly url: string
  readonly pid: number
  readonly requests: Readonly<Record<keyof typeof kinds, Request>>
}

const at = (file: string) => Path.join(import.meta.dirname, file)

/** A server, with a request for each kind. Its order to read is the first one that it takes. */
const serving = Effect.fnUntraced(function* (url: string, pid: number) {
  const placed = yield* Effect.promise(async () => {
    const response = await fetch(`${url}/orders`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: order
    })
    return (await response.json()) as { readonly id: string }
  })
  const read: Request = { method: "GET", path: `/orders/${placed.id}` }
  return { url, pid, requests: { place, read, live } }
})

const ours = Effect.gen(function* () {
  const { databaseUrl } = yield* Environment
  const { pid, url } = yield* ServiceProcess.start({
    roles: "http",
    env: {
      DATABASE_URL: Redacted.value(databaseUrl),
      DATA_DIRECTORY: yield* TestDatabase.dataDirectory,
      PORT: "0",
      LOG_LEVEL: "Error",
      NODE_OPTIONS: Contenders.nodeOptions
    }
  })
  return yield* serving(url!, pid)
})

const child = Effect.fnUntraced(function* (file: string) {
  const { databaseUrl } = yield* Environment
  const { call, pid } = yield* Child.start(at(file), {
    DATABASE_URL: Redacted.value(databaseUrl),
    NODE_OPTIONS: Contenders.nodeOptions
  })
  return yield* serving(yield* call<string>("listen"), pid)
})

interface Block {
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  /** CPU of the server for a request, without Postgres. */
  readonly micros: number
}

/** The kinds of requests, with the share of plain code's rate that ours should reach. */
const kinds = { place: "POST /orders", read: "GET /orders/{id}", live: "GET /health/live" } as const
const wanted = 0.7

export const requests = Effect.fnUntraced(function* (options: {
  readonly clients: number
  readonly rounds: number
  readonly seconds: number
  /** Of each kind of request at each server, before the first block. V8 compiles ours for some seconds. */
  readonly warmUpSeconds: number
}) {
  if (!Contenders.areInstalled())
    return yield* Effect.die(new Error("the peers are not installed: npm ci --prefix bench/peers"))
  const servers = {
    ours: yield* ours,
    plain: yield* child("peers/PlainServer.js"),
    bare: yield* child("requests/BareEffect.ts")
  }
  const { call } = yield* Child.start(at("requests/Client.ts"), {})
  const block = Effect.fnUntraced(function* ({ pid, url }: Server, request: Request, seconds: number) {
    const before = Cpu.secondsOf(pid)
    const load: Load = { url, clients: options.clients, millis: seconds * 1_000, ...request }
    const { millis, seconds: took } = yield* call<Answers>("run", load)
    return {
      perSecond: millis.length / took,
      p50: quantile(millis, 0.5),
      p99: quantile(millis, 0.99),
      micros: ((Cpu.secondsOf(pid) - before) / millis.length) * 1e6
    } satisfies Block
  })
  const results: Record<string, Array<Block>> = {}
  // The first round is not counted.
  for (let round = 0; round <= options.rounds; round++) {
    for (const kind of Object.keys(kinds) as Array<keyof typeof kinds>) {
      for (const [who, server] of Object.entries(servers)) {
        const measured = yield* block(
          server,
          server.requests[kind],
          round === 0 ? options.warmUpSeconds : options.seconds
        )
        if (round > 0) (results[`${kind} ${who}`] ??= []).push(measured)
      }
    }
  }
  return { ...options, results }
})

/** The rate of each kind of request beside plain code's, for the whole picture. */
export const rows = ({ results }: Effect.Success<ReturnType<typeof requests>>): ReadonlyArray<Row> =>
  Object.entries(kinds).map(([kind, name]) => ({
    what: name,
    unit: "/s",
    ours: (results[`${kind} ours`] ?? []).map(({ perSecond }) => perSecond),
    peer: "node:http and pg",
    theirs: (results[`${kind} plain`] ?? []).map(({ perSecond }) => perSecond),
    limit: { bound: "least", ratio: wanted }
  }))

/** The result for a reader. */
export const print = ({
  clients,
  results,
  rounds,
  seconds,
  warmUpSeconds
}: Effect.Success<ReturnType<typeof requests>>): string => {
  const rows = Object.entries(kinds).flatMap(([kind, name]) =>
    ["ours", "plain", "bare"].flatMap((who) => {
      const blocks = results[`${kind} ${who}`]
      const plain = results[`${kind} plain`]
      if (blocks === undefined || plain === undefined) return []
      const of = (pick: (block: Block) => number) => blocks.map(pick)
      const ratio = blocks.map(({ perSecond }, index) => perSecond / plain[index]!.perSecond)
      return [
        [
          who === "ours" ? name : who === "plain" ? "  node:http and pg" : "  Effect's router and driver alone",
          show(spread(of(({ perSecond }) => perSecond)), 0),
          spread(of(({ p50 }) => p50)).median.toFixed(2),
          spread(of(({ p99 }) => p99)).median.toFixed(2),
          spread(of(({ micros }) => micros)).median.toFixed(0),
          who === "plain" ? "" : show(interval(ratio), 2)
        ]
      ]
    })
  )
  return [
    `${clients} clients, ${rounds} rounds of ${seconds} s after ${warmUpSeconds} s of each; wanted: ${wanted} of plain code's rate`,
    "",
    table(["", "requests/s", "p50 ms", "p99 ms", "CPU µs", "of plain"], rows)
  ].join("\n")
}
