/** A stopping server, seen by clients with kept connections: they get a last answer or a refusal, and never a broken connection. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import { Worker } from "node:worker_threads"
import * as Connections from "../../src/http/Connections.ts"
import * as Draining from "../../src/http/Draining.ts"

/** Enough clients that some are about to send at any moment. */
const clients = 300

/**
 * Clients on kept connections, in a thread of their own. Each sends, waits and sends again, until it is refused, and reports all other
 * outcomes. The waits are those of clients on a busy machine: mostly short, sometimes more than a second.
 */
const load = `
const http = require("node:http")
const { parentPort, workerData: { port, clients } } = require("node:worker_threads")
const surprises = {}
let answers = 0
let left = clients
// Timers run before sockets are read here, so a client that is due sends before it reads the answer's end.
const work = () => {
  const until = performance.now() + 50
  while (performance.now() < until);
}
setInterval(() => setImmediate(work), 100).unref()
const pause = () => 200 + Math.random() * 800
const client = (agent, sinceMillis) => {
  // The machine stood still, and the wait was longer than intended. A client that is silent for so long may send just as the connection
  // closes.
  const isLate = performance.now() - sinceMillis > 1_500
  const request = http.request({ host: "127.0.0.1", port, agent, method: "POST", path: "/" }, (response) => {
    response.resume()
    response.once("end", () => {
      answers += 1
      if (answers === clients * 3) parentPort.postMessage({ busy: true })
      const endedMillis = performance.now()
      setTimeout(() => client(agent, endedMillis), pause())
    })
    response.once("error", failed)
  })
  const failed = (error) => {
    if (error.code !== "ECONNREFUSED" && !(isLate && request.reusedSocket)) {
      const what = error.message + (request.reusedSocket ? " on a kept connection" : "")
      surprises[what] = (surprises[what] ?? 0) + 1
    }
    agent.destroy()
    if (--left === 0) parentPort.postMessage({ busy: false, answers, surprises })
  }
  request.once("error", failed)
  request.end("{}")
}
for (let index = 0; index < clients; index++) client(new http.Agent({ keepAlive: true, maxSockets: 1 }), performance.now())
`

interface Report {
  readonly busy: boolean
  readonly answers: number
  readonly surprises: Readonly<Record<string, number>>
}

/** A server that takes a little time for each answer, and is stopped by {@link Draining}. */
const serve = Effect.acquireRelease(
  Effect.callback<{ readonly port: number } & Draining.Draining>((resume) => {
    const server = Http.createServer({ keepAliveTimeout: 65_000 }, (request, response) => {
      request.resume()
      setTimeout(() => response.end("{}"), Math.random() * 20)
    })
    const connections = Connections.watch(server, {
      connections: 1_000,
      answerTimeoutMillis: 60_000,
      onClosed: () => {}
    })
    const draining = Draining.make(server, connections)
    server.listen(0, "127.0.0.1", 1_000, () =>
      resume(Effect.succeed({ ...draining, port: (server.address() as AddressInfo).port }))
    )
  }),
  ({ drain }) => drain(0)
)

it.live("300 clients with kept connections, all of them busy, see answers and refused connections alone", () =>
  Effect.gen(function* () {
    const { drain, port } = yield* serve
    const worker = yield* Effect.acquireRelease(
      Effect.sync(() => new Worker(load, { eval: true, workerData: { port, clients } })),
      (running) => Effect.promise(() => running.terminate())
    )
    const next = Effect.promise(
      () =>
        new Promise<Report>((resolve, reject) => {
          worker.once("message", resolve)
          worker.once("error", reject)
        })
    )
    assert.isTrue((yield* next).busy)
    const [, report] = yield* Effect.all([drain(60_000), next], { concurrency: "unbounded" })
    assert.deepStrictEqual(report.surprises, {})
    assert.isAbove(report.answers, clients * 3)
  }).pipe(Effect.scoped)
)

it.live("a request under way is answered as the last one of its connection, and idle connections are closed", () =>
  Effect.gen(function* () {
    const { drain, port } = yield* serve
    const agent = new Http.Agent({ keepAlive: true })
    const send = Effect.callback<string | undefined>((resume) => {
      const request = Http.get({ host: "127.0.0.1", port, agent }, (response) => {
        response.resume()
        response.once("end", () => resume(Effect.succeed(response.headers.connection)))
      })
      request.once("error", (error) => resume(Effect.die(error)))
    })
    assert.strictEqual(yield* send, "keep-alive")
    // One connection is used while the server drains, the other one is not.
    const [first, second] = yield* Effect.all([send, send], { concurrency: "unbounded" })
    assert.deepStrictEqual([first, second], ["keep-alive", "keep-alive"])
    const [, last] = yield* Effect.all([drain(60_000), send], { concurrency: "unbounded" })
    assert.strictEqual(last, "close")
    agent.destroy()
  }).pipe(Effect.scoped)
)
