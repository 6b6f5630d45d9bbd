/** The bounds on a server's connections. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as Http from "node:http"
import { type AddressInfo, connect, type Socket } from "node:net"
import * as Connections from "../../src/http/Connections.ts"
import * as Draining from "../../src/http/Draining.ts"
import { eventually } from "../support/Counters.ts"

interface Watched extends Connections.Connections {
  readonly port: number
  readonly server: Http.Server
  readonly closed: ReadonlyArray<Connections.ClosedReason>
  /** Answers to requests that wait for the test. */
  readonly waiting: ReadonlyArray<Http.ServerResponse>
}

/** A server that leaves all answers to the test. */
const watch = (limits: { readonly connections: number; readonly answerTimeoutMillis: number }) =>
  Effect.acquireRelease(
    Effect.callback<Watched>((resume) => {
      const closed: Array<Connections.ClosedReason> = []
      const waiting: Array<Http.ServerResponse> = []
      const server = Http.createServer()
      const connections = Connections.watch(server, { ...limits, onClosed: (reason) => closed.push(reason) })
      const keep = (_: Http.IncomingMessage, response: Http.ServerResponse) => void waiting.push(response)
      server.on("request", keep)
      server.on("checkContinue", keep)
      server.listen(0, "127.0.0.1", () =>
        resume(
          Effect.succeed({ ...connections, server, closed, waiting, port: (server.address() as AddressInfo).port })
        )
      )
    }),
    ({ server }) =>
      Effect.sync(() => {
        server.closeAllConnections()
        server.close()
      })
  )

const client = (port: number, text = "") =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const socket = connect(port, "127.0.0.1")
      socket.on("error", () => {})
      if (text !== "") socket.write(text)
      return socket
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

const until = (what: string, isSo: () => boolean) => eventually(what, Effect.sync(isSo))

const ending = (socket: Socket) => {
  socket.resume()
  return until("the connection to end", () => socket.closed)
}

const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
/** A request that Node announces by another event. */
const expecting = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n{}"

it.live("a connection above the limit takes the place of the one that has been idle for longest", () =>
  Effect.gen(function* () {
    const { closed, open, port, waiting } = yield* watch({ connections: 3, answerTimeoutMillis: 60_000 })
    const busy = yield* client(port, expecting)
    yield* until("the request", () => waiting.length === 1)
    const idle = yield* client(port)
    yield* until("two connections", () => open.size === 2)
    const later = yield* client(port)
    yield* until("three connections", () => open.size === 3)
    const newcomer = yield* client(port, request)
    yield* until("a connection to be closed", () => closed.length === 1)
    // The busy one is older, and is being answered.
    assert.sameMembers(
      [...open.keys()].map(({ remotePort }) => remotePort),
      [busy, later, newcomer].map(({ localPort }) => localPort)
    )
    assert.deepStrictEqual(closed, ["too many connections"])
    yield* ending(idle)
    yield* until("the second request", () => waiting.length === 2)
  }).pipe(Effect.scoped)
)

it.live("where all connections are being answered, a further one is closed", () =>
  Effect.gen(function* () {
    const { closed, open, port, waiting } = yield* watch({ connections: 2, answerTimeoutMillis: 60_000 })
    yield* Effect.replicateEffect(client(port, request), 2)
    yield* until("both requests", () => waiting.length === 2)
    yield* ending(yield* client(port))
    assert.deepStrictEqual([open.size, closed], [2, ["too many connections"]])
  }).pipe(Effect.scoped)
)

it.live(
  "a client that does not read an answer in time loses its connection; one whose answer is not ready keeps it",
  () =>
    Effect.gen(function* () {
      const { closed, closeUnread, open, port, waiting } = yield* watch({ connections: 9, answerTimeoutMillis: 50 })
      const reader = yield* client(port, request)
      yield* until("the first request", () => waiting.length === 1)
      const lazy = yield* client(port, request)
      lazy.pause()
      yield* until("the second request", () => waiting.length === 2)
      waiting[1]?.end(Buffer.alloc(32_000_000))
      yield* eventually(
        "a connection to be closed",
        Effect.sync(() => {
          closeUnread()
          return open.size < 2
        })
      )
      assert.deepStrictEqual(
        [[...open.keys()].map(({ remotePort }) => remotePort), closed],
        [[reader.localPort], ["answer not read"]]
      )
      waiting[0]?.end("late")
      const answer = yield* Effect.promise(
        () => new Promise<string>((resolve) => reader.once("data", (chunk) => resolve(chunk.toString())))
      )
      assert.match(answer, /late$/)
    }).pipe(Effect.scoped)
)

it.live("the end of a connection ends the wait for each of its answers, and a written answer ends its own", () =>
  Effect.gen(function* () {
    const { onceAnswered, open, port, waiting } = yield* watch({ connections: 9, answerTimeoutMillis: 60_000 })
    const leaving = yield* client(port, request.repeat(4))
    yield* until("the requests", () => waiting.length === 4)
    const ended: Array<number> = []
    waiting.forEach((answer, index) => onceAnswered(answer, () => ended.push(index)))
    // It waits behind the first one, so it is not written.
    waiting[2]?.end("ok")
    waiting[0]?.end("ok")
    yield* until("the first answer", () => ended.length > 0)
    assert.deepStrictEqual(ended, [0])
    leaving.destroy()
    yield* until("the end of the connection", () => open.size === 0)
    assert.deepStrictEqual(ended, [0, 1, 2, 3])
  }).pipe(Effect.scoped)
)

it.live("a stop waits for the answer to a request with Expect: 100-continue", () =>
  Effect.gen(function* () {
    const watched = yield* watch({ connections: 9, answerTimeoutMillis: 60_000 })
    const { open, port, server, waiting } = watched
    const { drain } = Draining.make(server, watched)
    const busy = yield* client(port, expecting)
    yield* until("the request", () => waiting.length === 1)
    const idle = yield* client(port)
    yield* until("both connections", () => open.size === 2)
    const draining = yield* Effect.forkChild(drain(60_000))
    // It was opened after the other one, and is closed for its silence.
    yield* ending(idle)
    assert.isFalse(busy.destroyed)
    assert.strictEqual(open.size, 1)
    waiting[0]?.end("ok")
    yield* ending(busy)
    yield* Fiber.join(draining)
  }).pipe(Effect.scoped)
)

it.live("of a connection that sends hundreds of requests at once, none is begun after the one that closes it", () =>
  Effect.gen(function* () {
    const { closed, port, waiting } = yield* watch({ connections: 10, answerTimeoutMillis: 60_000 })
    yield* ending(yield* client(port, request.repeat(500)))
    assert.deepStrictEqual(closed, ["too many requests"])
    assert.strictEqual(waiting.length, Connections.maxUnanswered + 1)
  }).pipe(Effect.scoped)
)
