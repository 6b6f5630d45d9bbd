import { assert, describe, it } from "@effect/vitest"
import { Effect, type Scope } from "effect"
import * as net from "node:net"
import * as TcpProxy from "./TcpProxy.ts"

const host = "127.0.0.1"

/** Long enough for two busy cores and shorter than vitest's own limit, so that a failure says what it waited for. */
const patience = "30 seconds"

/** How a client sees the end of its connection. */
type Ending = "end" | "reset"

interface Peer {
  readonly socket: net.Socket
  readonly send: (text: string | Buffer) => Effect.Effect<void>
  readonly received: () => Buffer
  /** Waits until that many bytes have arrived in total. */
  readonly receives: (bytes: number) => Effect.Effect<string>
  readonly ending: Effect.Effect<Ending>
}

const peerOf = (socket: net.Socket): Peer => {
  let received = Buffer.alloc(0)
  let ending: Ending | undefined
  const waiters = new Set<() => void>()
  const changed = () => waiters.forEach((waiter) => waiter())
  socket.on("data", (chunk) => {
    received = Buffer.concat([received, chunk])
    changed()
  })
  socket.on("end", () => {
    ending ??= "end"
    changed()
  })
  socket.on("error", () => {
    ending ??= "reset"
    changed()
  })
  const wait = <A>(look: () => A | undefined): Effect.Effect<A> =>
    Effect.callback<A>((resume) => {
      const waiter = () => {
        const found = look()
        if (found === undefined) return
        waiters.delete(waiter)
        resume(Effect.succeed(found))
      }
      waiters.add(waiter)
      waiter()
      return Effect.sync(() => void waiters.delete(waiter))
    }).pipe(Effect.timeout(patience), Effect.orDie)
  return {
    socket,
    send: (text) => Effect.sync(() => void socket.write(text)),
    received: () => received,
    receives: (bytes) => wait(() => (received.length >= bytes ? received.toString() : undefined)),
    ending: wait(() => ending)
  }
}

/** A server that hands each of its connections to the test, and answers through `answer` if given. */
const makeServer = (answer?: (chunk: Buffer, socket: net.Socket) => void) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly server: net.Server; readonly peers: Array<Peer>; readonly port: number }>((resume) => {
      const peers: Array<Peer> = []
      const server = net.createServer({ allowHalfOpen: true }, (socket) => {
        peers.push(peerOf(socket))
        if (answer !== undefined) socket.on("data", (chunk) => answer(chunk, socket))
      })
      server.listen(0, host, () =>
        resume(Effect.succeed({ server, peers, port: (server.address() as net.AddressInfo).port }))
      )
    }),
    ({ peers, server }) =>
      Effect.sync(() => {
        server.close()
        peers.forEach(({ socket }) => socket.destroy())
      })
  )

const connect = (address: TcpProxy.Address): Effect.Effect<Peer, NodeJS.ErrnoException, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.callback<net.Socket, NodeJS.ErrnoException>((resume) => {
      const socket = net.connect({ ...address, allowHalfOpen: true })
      socket.once("error", (error) => resume(Effect.fail(error)))
      socket.once("connect", () => resume(Effect.succeed(socket)))
    }),
    (socket) => Effect.sync(() => socket.destroy())
  ).pipe(Effect.map(peerOf))

const echo = (chunk: Buffer, socket: net.Socket) => void socket.write(chunk)

const bounded = Effect.timeout(patience)

describe("TcpProxy", () => {
  it.live("passes bytes and the ends of streams on, for each direction separately", () =>
    Effect.gen(function* () {
      const server = yield* makeServer(echo)
      const proxy = yield* TcpProxy.make({ upstream: { host, port: server.port } })
      const client = yield* connect(proxy)
      yield* client.send("hello")
      assert.strictEqual(yield* client.receives(5), "hello")
      assert.strictEqual(yield* proxy.connections, 1)

      client.socket.end()
      const [peer] = server.peers
      assert.strictEqual(yield* peer!.ending, "end")
      yield* peer!.send(", bye")
      peer!.socket.end()
      assert.strictEqual(yield* client.receives(10), "hello, bye")
      assert.strictEqual(yield* client.ending, "end")

      const counters = yield* bounded(proxy.until(({ responseBytes }) => responseBytes === 10))
      assert.deepInclude(counters, { accepted: 1, requestBytes: 5, responseBytes: 10, swallowedBytes: 0 })
    })
  )

  it.live("a stream far larger than its buffers arrives whole", () =>
    Effect.gen(function* () {
      const server = yield* makeServer(echo)
      const proxy = yield* TcpProxy.make({ upstream: { host, port: server.port } })
      const client = yield* connect(proxy)
      const sent = Buffer.alloc(4_000_000, "0123456789abcdef")
      yield* client.send(sent)
      yield* client.receives(sent.length)
      assert.isTrue(client.received().equals(sent))
    })
  )

  it.live("a black hole for responses lets the request through and loses the answer", () =>
    Effect.gen(function* () {
      const server = yield* makeServer(echo)
      const proxy = yield* TcpProxy.make({ upstream: { host, port: server.port } })
      const client = yield* connect(proxy)
      yield* proxy.blackHole("responses")
      yield* client.send("lost?")
      yield* bounded(proxy.until(({ swallowedBytes }) => swallowedBytes === 5))
      assert.strictEqual(yield* server.peers[0]!.receives(5), "lost?")
      assert.strictEqual(client.received().length, 0)

      // After lost bytes the old connection can't go on: it is reset, and a new one works.
      yield* proxy.pass
      assert.strictEqual(yield* client.ending, "reset")
      const next = yield* connect(proxy)
      yield* next.send("again")
      assert.strictEqual(yield* next.receives(5), "again")
    })
  )

  it.live("a black hole for both directions accepts connections and says nothing", () =>
    Effect.gen(function* () {
      const server = yield* makeServer(echo)
      const proxy = yield* TcpProxy.make({ upstream: { host, port: server.port } })
      yield* proxy.blackHole()
      const client = yield* connect(proxy)
      yield* client.send("anybody?")
      yield* bounded(proxy.until(({ swallowedBytes }) => swallowedBytes === 8))
      assert.strictEqual((yield* proxy.counters).requestBytes, 0)
    })
  )

  it.live("held bytes arrive late, in order, even after their sender is gone", () =>
    Effect.gen(function* () {
      const server = yield* makeServer()
      const proxy = yield* TcpProxy.make({ upstream: { host, port: server.port } })
      const client = yield* connect(proxy)
      yield* client.send("early ")
      yield* bounded(proxy.until(({ requestBytes }) => requestBytes === 6))
      yield* proxy.hold("requests")
      yield* client.send("late")
      client.socket.end()
      client.socket.destroy()
      yield* server.peers[0]!.receives(6)
      assert.strictEqual((yield* proxy.counters).requestBytes, 6)

      yield* proxy.pass
      assert.strictEqual(yield* server.peers[0]!.receives(10), "early late")
      assert.strictEqual(yield* server.peers[0]!.ending, "end")
    })
  )

  it.live("refuses new connections, keeps the open ones, and listens again on the same port", () =>
    Effect.gen(function* () {
      const server = yield* makeServer(echo)
      const proxy = yield* TcpProxy.make({ upstream: { host, port: server.port } })
      const client = yield* connect(proxy)
      yield* proxy.refuse
      const error = yield* Effect.flip(connect(proxy))
      assert.strictEqual(error.code, "ECONNREFUSED")
      yield* client.send("still here")
      assert.strictEqual(yield* client.receives(10), "still here")

      yield* proxy.pass
      const next = yield* connect(proxy)
      yield* next.send("back")
      assert.strictEqual(yield* next.receives(4), "back")
    })
  )

  it.live("reset ends both sides with a RST and leaves the proxy usable", () =>
    Effect.gen(function* () {
      const server = yield* makeServer(echo)
      const proxy = yield* TcpProxy.make({ upstream: { host, port: server.port } })
      const client = yield* connect(proxy)
      yield* client.send("x")
      yield* client.receives(1)
      assert.strictEqual(yield* proxy.reset, 1)
      assert.strictEqual(yield* client.ending, "reset")
      assert.strictEqual(yield* server.peers[0]!.ending, "reset")
      assert.strictEqual(yield* proxy.reset, 0)
      const next = yield* connect(proxy)
      yield* next.send("y")
      assert.strictEqual(yield* next.receives(1), "y")
    })
  )

  it.live("an upstream that is down shows as a reset", () =>
    Effect.gen(function* () {
      const [port] = yield* TcpProxy.freePorts(1)
      const proxy = yield* TcpProxy.make({ upstream: { host, port: port! } })
      const client = yield* connect(proxy)
      assert.strictEqual(yield* client.ending, "reset")
    })
  )

  it.live("delays each direction by what was asked", () =>
    Effect.gen(function* () {
      const server = yield* makeServer(echo)
      const proxy = yield* TcpProxy.make({ upstream: { host, port: server.port } })
      yield* proxy.delay(150)
      const client = yield* connect(proxy)
      const before = performance.now()
      yield* client.send("a")
      yield* client.send("b")
      assert.strictEqual(yield* client.receives(2), "ab")
      // Timers may fire up to a millisecond early, and there are two of them.
      assert.isAtLeast(performance.now() - before, 298)
    })
  )

  it.live("cuts after exactly so many bytes", () =>
    Effect.gen(function* () {
      const server = yield* makeServer()
      const proxy = yield* TcpProxy.make({ upstream: { host, port: server.port } })
      const cut = yield* proxy.cutAfter({ bytes: 7, direction: "requests" })
      const client = yield* connect(proxy)
      yield* client.send("0123")
      yield* client.send("456789")
      yield* bounded(cut)
      yield* client.ending
      yield* server.peers[0]!.ending
      assert.strictEqual(server.peers[0]!.received().toString(), "0123456")
    })
  )

  it.live("its port and connections are gone with its scope", () =>
    Effect.gen(function* () {
      const server = yield* makeServer(echo)
      const { client, proxy } = yield* Effect.scoped(
        Effect.gen(function* () {
          const proxy = yield* TcpProxy.make({ upstream: { host, port: server.port } })
          const socket = net.connect(proxy.port, host)
          const client = peerOf(socket)
          yield* client.send("x")
          yield* client.receives(1)
          return { client, proxy }
        })
      )
      yield* client.ending
      assert.strictEqual((yield* Effect.flip(connect(proxy))).code, "ECONNREFUSED")
      assert.isTrue(yield* TcpProxy.isPortFree(proxy.port))
    })
  )
})

/** A request in Kafka's framing. The proxy does not read beyond the correlation id. */
const request = (apiKey: number, correlationId: number, body = "question") => {
  const header = Buffer.alloc(12)
  header.writeInt32BE(8 + body.length, 0)
  header.writeInt16BE(apiKey, 4)
  header.writeInt32BE(correlationId, 8)
  return Buffer.concat([header, Buffer.from(body)])
}

/** Answers each request with its correlation id, in two parts that fall between the proxy's reads. */
const answerFrames = () => {
  let rest: Buffer = Buffer.alloc(0)
  return (chunk: Buffer, socket: net.Socket) => {
    rest = Buffer.concat([rest, chunk])
    const responses: Array<Buffer> = []
    while (rest.length >= 4 && rest.length >= rest.readInt32BE(0) + 4) {
      const response = Buffer.alloc(12)
      response.writeInt32BE(8, 0)
      response.writeInt32BE(rest.readInt32BE(8), 4)
      rest = rest.subarray(rest.readInt32BE(0) + 4)
      responses.push(response)
    }
    const answer = Buffer.concat(responses)
    socket.write(answer.subarray(0, 3))
    setImmediate(() => socket.write(answer.subarray(3)))
  }
}

const correlationIds = (client: Peer): ReadonlyArray<number> => {
  const received = client.received()
  return Array.from({ length: Math.floor(received.length / 12) }, (_, index) => received.readInt32BE(index * 12 + 4))
}

describe("TcpProxy for Kafka", () => {
  it.live("loses the answer to one kind of request, after the server has carried it out", () =>
    Effect.gen(function* () {
      const server = yield* makeServer(answerFrames())
      const proxy = yield* TcpProxy.makeKafka({ upstream: { host, port: server.port } })
      const dropped = yield* proxy.dropNextResponse({ apiKey: TcpProxy.ApiKey.Produce })
      const client = yield* connect(proxy)
      yield* client.send(request(TcpProxy.ApiKey.Metadata, 1))
      yield* client.receives(12)
      assert.deepStrictEqual(correlationIds(client), [1])

      const produce = request(TcpProxy.ApiKey.Produce, 2)
      yield* client.send(produce.subarray(0, 9))
      yield* bounded(proxy.until(({ requestFrames }) => requestFrames[TcpProxy.ApiKey.Metadata] === 1))
      yield* client.send(produce.subarray(9))
      assert.deepStrictEqual(yield* bounded(dropped), { apiKey: TcpProxy.ApiKey.Produce, correlationId: 2, bytes: 12 })
      yield* client.ending
      assert.deepStrictEqual(correlationIds(client), [1])

      // Only one delay was asked for.
      const next = yield* connect(proxy)
      yield* next.send(request(TcpProxy.ApiKey.Produce, 3))
      yield* next.receives(12)
      assert.deepStrictEqual(correlationIds(next), [3])
      const counters = yield* proxy.counters
      assert.strictEqual(counters.droppedResponses, 1)
      assert.strictEqual(counters.requestFrames[TcpProxy.ApiKey.Produce], 2)
      assert.strictEqual(counters.responseFrames[TcpProxy.ApiKey.Produce], 1)
    })
  )

  it.live("delays one response, and the later ones of its connection wait behind it", () =>
    Effect.gen(function* () {
      const server = yield* makeServer(answerFrames())
      const proxy = yield* TcpProxy.makeKafka({ upstream: { host, port: server.port } })
      yield* proxy.delayResponse({ apiKey: TcpProxy.ApiKey.Produce, millis: 100 })
      const client = yield* connect(proxy)
      const before = performance.now()
      yield* client.send(Buffer.concat([request(TcpProxy.ApiKey.Produce, 1), request(TcpProxy.ApiKey.Metadata, 2)]))
      yield* client.receives(24)
      assert.isAtLeast(performance.now() - before, 99)
      assert.deepStrictEqual(correlationIds(client), [1, 2])
    })
  )

  it.live("resets a connection that does not speak Kafka", () =>
    Effect.gen(function* () {
      const server = yield* makeServer(echo)
      const proxy = yield* TcpProxy.makeKafka({ upstream: { host, port: server.port } })
      const client = yield* connect(proxy)
      yield* client.send("GET / HTTP/1.1\r\n\r\n")
      assert.strictEqual(yield* client.ending, "reset")
    })
  )
})
