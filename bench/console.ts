/**
 * `bench console`: what open pages of the console cost the service. One service process with all roles takes payments at a steady pace, in turns
 * without a page and with some that listen to the live stream. The CPU is that of its process and of Postgres, so the load itself is not counted.
 */
import { Effect, Redacted } from "effect"
import * as Http from "node:http"
import * as ServiceProcess from "../src/cli/ServiceProcess.ts"
import * as Cpu from "./Cpu.ts"
import { Environment } from "./Environment.ts"
import { interval, show, table } from "./Figures.ts"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as Path from "node:path"

const adminToken = "a-token-for-the-benchmark"
const body = JSON.stringify({
  customerId: "customer-1",
  currency: "EUR",
  lines: [{ sku: "book", quantity: 2, unitAmountMinor: 1_250 }]
})

/** After the last page has gone, reading goes on for ten seconds (LiveStream.ts); a block without pages begins after that. */
const settleMillis = 12_000

const json = { "content-type": "application/json" }

/** Places an order and pays it. */
const payOne = async (url: string, number: number) => {
  const placed = await fetch(`${url}/orders`, { method: "POST", headers: json, body })
  const { id } = (await placed.json()) as { readonly id: string }
  const paid = await fetch(`${url}/orders/${id}/pay`, {
    method: "POST",
    headers: { ...json, "idempotency-key": `pay-${number}` },
    body: JSON.stringify({ paymentMethod: "pm_ok" })
  })
  await paid.text()
  if (paid.status !== 200) throw new Error(`paying was answered ${paid.status}`)
}

/** Pays at this pace until it is stopped. A payment that is late does not delay the next one. */
const load = (url: string, perSecond: number) => {
  let number = 0
  /** On a machine that is too busy some are refused. The load is then smaller, the same with pages and without. */
  let refused = 0
  const timer = setInterval(() => {
    payOne(url, ++number).catch(() => (refused += 1))
  }, 1_000 / perSecond)
  return { stop: () => clearInterval(timer), refused: () => refused, paid: () => number }
}

/** A page that listens, and how many bytes it got. */
const page = (url: string) => {
  let bytes = 0
  const request = Http.get(`${url}/admin/stream`, {
    agent: false,
    headers: { authorization: `Bearer ${adminToken}` }
  })
  request.once("response", (response) => response.on("data", (piece: Buffer) => (bytes += piece.length)))
  request.on("error", () => {})
  return { close: () => request.destroy(), bytes: () => bytes }
}

interface Block {
  /** Shares of a core. */
  readonly service: number
  readonly postgres: number
  readonly bytes: number
}

const measured = Effect.fnUntraced(function* (
  pid: number,
  seconds: number,
  pages: ReadonlyArray<ReturnType<typeof page>>
) {
  const before = yield* Cpu.sample
  const serviceBefore = Cpu.secondsOf(pid)
  const bytesBefore = pages.reduce((sum, { bytes }) => sum + bytes(), 0)
  const began = performance.now()
  yield* Effect.sleep(seconds * 1_000)
  const took = (performance.now() - began) / 1_000
  const used = Cpu.between(before, yield* Cpu.sample)
  return {
    service: (Cpu.secondsOf(pid) - serviceBefore) / took,
    postgres: (used.postgres ?? Number.NaN) / took,
    bytes: (pages.reduce((sum, { bytes }) => sum + bytes(), 0) - bytesBefore) / took
  } satisfies Block
})

/** Measures blocks in turns. */
export const console_ = Effect.fnUntraced(function* (options: {
  readonly pages: number
  readonly rate: number
  readonly rounds: number
  readonly seconds: number
}) {
  const { brokers, databaseUrl } = yield* Environment
  const directory = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(Path.join(tmpdir(), "paid-once-bench-"))),
    (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
  )
  const service = yield* ServiceProcess.start({
    env: {
      DATABASE_URL: Redacted.value(databaseUrl),
      DATA_DIRECTORY: directory,
      ADMIN_TOKEN: adminToken,
      PORT: "0",
      LOG_LEVEL: "Error",
      ...(brokers === "" ? {} : { KAFKA_BROKERS: brokers })
    }
  })
  const url = service.url!
  const { paid, refused, stop } = yield* Effect.acquireRelease(
    Effect.sync(() => load(url, options.rate)),
    (running) => Effect.sync(() => running.stop())
  )
  // Connections, compiled code and caches.
  yield* Effect.sleep(settleMillis)
  const without: Array<Block> = []
  const withPages: Array<Block> = []
  for (let round = 0; round < options.rounds; round++) {
    without.push(yield* measured(service.pid, options.seconds, []))
    const pages = Array.from({ length: options.pages }, () => page(url))
    yield* Effect.sleep(2_000)
    withPages.push(yield* measured(service.pid, options.seconds, pages))
    for (const { close } of pages) close()
    yield* Effect.sleep(settleMillis)
  }
  stop()
  return { ...options, kafka: brokers !== "", paid: paid(), refused: refused(), without, withPages }
})

/** The result for a reader. */
export const print = (result: Effect.Success<ReturnType<typeof console_>>): string => {
  const { kafka, paid, pages, rate, refused, rounds, seconds, without, withPages } = result
  const percent = (values: ReadonlyArray<number>) => interval(values.map((value) => value * 100))
  const row = (name: string, of: (block: Block) => number) => [
    name,
    show(percent(without.map(of)), 2),
    show(percent(withPages.map(of)), 2),
    show(percent(withPages.map((block, index) => of(block) - of(without[index]!))), 2),
    show(interval(withPages.map((block, index) => of(block) / of(without[index]!))), 3)
  ]
  return [
    `${rate} payments a second, ${kafka ? "Kafka" : "the embedded broker"}, ${rounds} blocks of ${seconds} s each way; CPU in % of a core` +
      (refused === 0 ? "" : `; ${refused} of ${paid} payments were refused`),
    table(
      ["", "without", `${pages} pages`, "pages cost", "ratio"],
      [row("service", ({ service }) => service), row("Postgres", ({ postgres }) => postgres)]
    ),
    `each page gets ${(withPages.reduce((sum, { bytes }) => sum + bytes, 0) / withPages.length / pages / 1_000).toFixed(1)} kB/s`
  ].join("\n")
}
