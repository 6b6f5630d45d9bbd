import { Deferred, Effect, FiberSet, Latch, Queue, Redacted, type Scope } from "effect"
import { randomInt } from "node:crypto"
import * as net from "node:net"

/**
 * A TCP proxy that misbehaves on command, in front of Postgres, Kafka or anything else that speaks TCP.
 *
 * **When to use**
 *
 * In tests of failures on the wire: answers that get lost, connections that are reset, servers that stall. {@link make} knows bytes only.
 * {@link makeKafka} also sees Kafka's frames, and can lose or delay the answer to one kind of request.
 *
 * **Gotchas**
 *
 * Delays run on the clock of the fiber that made the proxy: use `it.live`, or move the TestClock. A connection is accepted before the proxy
 * connects to its upstream. So an upstream that is down shows as a reset, and only {@link TcpProxy.refuse} shows as ECONNREFUSED.
 */

/** `requests` travel from the client to the server, `responses` back. */
export type Direction = "requests" | "responses"

export interface Address {
  readonly host: string
  readonly port: number
}

/** Counters since the proxy was made. Bytes and frames count when they are passed on, not when they arrive. */
export interface Counters {
  readonly accepted: number
  readonly requestBytes: number
  readonly responseBytes: number
  /** Bytes that a black hole dropped. */
  readonly swallowedBytes: number
  /** Requests handed to the server, by Kafka's api key. Only a Kafka proxy counts frames. */
  readonly requestFrames: Readonly<Record<number, number>>
  readonly responseFrames: Readonly<Record<number, number>>
  readonly droppedResponses: number
}

export interface TcpProxy extends Address {
  /** How many connections are open now. */
  readonly connections: Effect.Effect<number>
  readonly counters: Effect.Effect<Counters>
  /** Waits until the counters satisfy the condition; bound it with `Effect.timeout`. */
  readonly until: (condition: (counters: Counters) => boolean) => Effect.Effect<Counters>
  /**
   * Back to a plain proxy: listens again, passes on held bytes, and disarms faults that have not happened. A connection that lost bytes is
   * reset, because its streams no longer fit together.
   */
  readonly pass: Effect.Effect<void>
  /** Accepts connections and bytes, and drops the bytes and ends of streams, like a network that loses every packet. */
  readonly blackHole: (directions?: Direction | "both") => Effect.Effect<void>
  /** Keeps bytes until {@link TcpProxy.pass}, which delivers them in order. So a zombie's bytes can arrive late. */
  readonly hold: (directions?: Direction | "both") => Effect.Effect<void>
  /** Answers new connections with ECONNREFUSED; open ones go on. */
  readonly refuse: Effect.Effect<void>
  /** Sends a RST to both ends of every open connection, and returns how many there were. */
  readonly reset: Effect.Effect<number>
  /** Passes on every byte that many milliseconds after it arrived, in order. */
  readonly delay: (millis: number, directions?: Direction | "both") => Effect.Effect<void>
  /**
   * Passes that many more bytes in one direction, counted over all connections. Then it closes the connection that reached the number. The
   * inner effect waits for that.
   */
  readonly cutAfter: (options: {
    readonly bytes: number
    readonly direction: Direction
  }) => Effect.Effect<Effect.Effect<void>>
}

/** A response that was dropped: the server has carried the request out, and the client does not know. */
export interface DroppedResponse {
  readonly apiKey: number
  readonly correlationId: number
  readonly bytes: number
}

export interface KafkaProxy extends TcpProxy {
  /**
   * Drops the next response of that kind and closes its connection on both sides. By then the request has been passed on and answered.
   * Arming twice drops two. The inner effect waits for this drop.
   */
  readonly dropNextResponse: (options: { readonly apiKey: number }) => Effect.Effect<Effect.Effect<DroppedResponse>>
  /** Delays the next response of that kind; later bytes of the same connection wait behind it. */
  readonly delayResponse: (options: { readonly apiKey: number; readonly millis: number }) => Effect.Effect<void>
}

/** The api keys of Kafka's protocol that tests name. */
export const ApiKey = {
  Produce: 0,
  Fetch: 1,
  ListOffsets: 2,
  Metadata: 3,
  OffsetCommit: 8,
  OffsetFetch: 9,
  FindCoordinator: 10,
  JoinGroup: 11,
  Heartbeat: 12,
  LeaveGroup: 13,
  SyncGroup: 14,
  ApiVersions: 18,
  CreateTopics: 19,
  InitProducerId: 22
} as const

const host = "127.0.0.1"

/**
 * Ports below the range that Linux (from 32768) and macOS (from 49152) give to outgoing connections. A port that a test binds again after a
 * restart must not be taken by a client meanwhile. And a reconnecting client must not connect to itself on it.
 */
const lowestPort = 23_000
const highestPort = 29_999

/** Ports that are found free now and bound later by a JVM: a thousand for each test process, below all others. */
const firstLater = 20_000 + 1_000 * (Number(process.env["VITEST_POOL_ID"] ?? 0) % 3)
const laterPorts = [firstLater, firstLater + 999] as const

/** With thousands of ports and few in use a second try is rare, and a hundred failures have another cause. */
const portAttempts = 100

/** The limit for each connection and direction. Above it the sender is paused, so that a held or delayed stream can't fill the memory. */
const maxPendingBytes = 1_048_576

/** The default of Kafka's `socket.request.max.bytes`. A longer frame shows that the stream is not Kafka's. */
const maxFrameBytes = 104_857_600

/** Correlation id and api key of a frame. */
interface Frame {
  readonly apiKey: number
  readonly correlationId: number
}

type Piece =
  | {
      readonly _tag: "Bytes"
      readonly bytes: Buffer
      readonly arrivedMillis: number
      readonly frame: Frame | undefined
    }
  | { readonly _tag: "End"; readonly arrivedMillis: number }
  | { readonly _tag: "Reset"; readonly arrivedMillis: number }

interface Flow {
  readonly released: Latch.Latch
  swallow: boolean
  delayMillis: number
  cut: { remaining: number; readonly done: Deferred.Deferred<void> } | undefined
}

interface Connection {
  readonly client: net.Socket
  readonly upstream: net.Socket
  readonly over: Deferred.Deferred<void>
  /** Set once bytes were lost: the streams can't go on. */
  tainted: boolean
}

const listen = (
  port: number,
  onConnection: (socket: net.Socket) => void
): Effect.Effect<net.Server, NodeJS.ErrnoException> =>
  Effect.callback((resume) => {
    // Half-open sockets are kept, so that the end of one direction reaches the other side as such.
    const server = net.createServer({ allowHalfOpen: true, noDelay: true }, onConnection)
    server.once("error", (error) => resume(Effect.fail(error)))
    server.listen(port, host, () => resume(Effect.succeed(server)))
    return Effect.sync(() => server.close())
  })

/** Node's random numbers and not Effect's: with a test's seed every test process would get the same ports. */
const portBetween = (lowest: number, highest: number) => Effect.sync(() => randomInt(lowest, highest + 1))

const listenSomewhere = (
  onConnection: (socket: net.Socket) => void,
  [lowest, highest]: readonly [number, number] = [lowestPort, highestPort]
): Effect.Effect<net.Server> =>
  portBetween(lowest, highest).pipe(
    Effect.flatMap((port) => listen(port, onConnection)),
    Effect.retry({ times: portAttempts, while: (error) => error.code === "EADDRINUSE" || error.code === "EACCES" }),
    Effect.orDie
  )

const portOf = (server: net.Server): number => (server.address() as net.AddressInfo).port

/**
 * That many different free ports of 127.0.0.1, outside the range of outgoing connections.
 *
 * **Gotchas**
 *
 * Nothing keeps them free until they are bound. Therefore each test process has a range of its own.
 */
export const freePorts = (count: number): Effect.Effect<ReadonlyArray<number>> =>
  Effect.acquireRelease(
    listenSomewhere((socket) => socket.destroy(), laterPorts),
    (server) => Effect.callback<void>((resume) => void server.close(() => resume(Effect.void)))
  ).pipe(
    // All are bound at once, so that they differ; the scope closes them together.
    Effect.replicateEffect(count),
    Effect.map((servers) => servers.map(portOf)),
    Effect.scoped
  )

/** Whether nothing listens on that port of 127.0.0.1. */
export const isPortFree = (port: number): Effect.Effect<boolean> =>
  listen(port, (socket) => socket.destroy()).pipe(
    Effect.flatMap((server) =>
      Effect.callback<boolean>((resume) => void server.close(() => resume(Effect.succeed(true))))
    ),
    Effect.catch(() => Effect.succeed(false))
  )

const write = (socket: net.Socket, bytes: Buffer): Effect.Effect<void> =>
  Effect.callback((resume) => {
    if (socket.destroyed || socket.write(bytes)) return resume(Effect.void)
    const proceed = () => {
      socket.off("drain", proceed).off("close", proceed)
      resume(Effect.void)
    }
    socket.on("drain", proceed).on("close", proceed)
    return Effect.sync(() => void socket.off("drain", proceed).off("close", proceed))
  })

/** Sends the buffered bytes and the end of the stream; done when the kernel has them. */
const end = (socket: net.Socket): Effect.Effect<void> =>
  Effect.callback((resume) => {
    if (socket.destroyed || socket.writableFinished) return resume(Effect.void)
    const proceed = () => {
      socket.off("finish", proceed).off("close", proceed)
      resume(Effect.void)
    }
    socket.on("finish", proceed).on("close", proceed)
    socket.end()
    return Effect.sync(() => void socket.off("finish", proceed).off("close", proceed))
  })

/** Cuts a byte stream into Kafka's frames: four bytes of length, and that many bytes. */
const frameSplitter = () => {
  let rest: Buffer = Buffer.alloc(0)
  return (chunk: Buffer): ReadonlyArray<Buffer> => {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    const frames: Array<Buffer> = []
    while (rest.length >= 4) {
      const length = rest.readInt32BE(0)
      if (length < 0 || length > maxFrameBytes)
        throw new Error(`a frame of ${length} bytes: this is not Kafka's protocol`)
      if (rest.length < length + 4) break
      frames.push(rest.subarray(0, length + 4))
      rest = rest.subarray(length + 4)
    }
    return frames
  }
}

const increment = (counts: Record<number, number>, key: number) => {
  counts[key] = (counts[key] ?? 0) + 1
}

const makeProxy = Effect.fnUntraced(function* (
  upstreamAddress: Address,
  kafka: boolean
): Effect.fn.Return<KafkaProxy, never, Scope.Scope> {
  const connections = new Set<Connection>()
  const flows: Record<Direction, Flow> = {
    requests: { released: yield* Latch.make(true), swallow: false, delayMillis: 0, cut: undefined },
    responses: { released: yield* Latch.make(true), swallow: false, delayMillis: 0, cut: undefined }
  }
  const totals = {
    accepted: 0,
    requestBytes: 0,
    responseBytes: 0,
    swallowedBytes: 0,
    requestFrames: {} as Record<number, number>,
    responseFrames: {} as Record<number, number>,
    droppedResponses: 0
  }
  const drops: Array<{ readonly apiKey: number; readonly dropped: Deferred.Deferred<DroppedResponse> }> = []
  const delays: Array<{ readonly apiKey: number; readonly millis: number }> = []

  const snapshot = (): Counters => ({
    ...totals,
    requestFrames: { ...totals.requestFrames },
    responseFrames: { ...totals.responseFrames }
  })
  const waiters = new Set<{
    readonly condition: (counters: Counters) => boolean
    readonly resume: (counters: Counters) => void
  }>()
  const counted = () => {
    if (waiters.size === 0) return
    const counters = snapshot()
    for (const waiter of waiters) {
      if (!waiter.condition(counters)) continue
      waiters.delete(waiter)
      waiter.resume(counters)
    }
  }

  const resetConnection = (connection: Connection) => {
    connection.client.resetAndDestroy()
    connection.upstream.resetAndDestroy()
    Deferred.doneUnsafe(connection.over, Effect.void)
  }
  const closeConnection = (connection: Connection) => {
    connection.client.destroy()
    connection.upstream.destroy()
    Deferred.doneUnsafe(connection.over, Effect.void)
  }

  const deliver = Effect.fnUntraced(function* (
    direction: Direction,
    connection: Connection,
    to: net.Socket,
    piece: Extract<Piece, { readonly _tag: "Bytes" }>
  ) {
    const flow = flows[direction]
    const { frame } = piece
    if (frame !== undefined && direction === "responses") {
      const delayed = delays.findIndex(({ apiKey }) => apiKey === frame.apiKey)
      if (delayed >= 0) yield* Effect.sleep(delays.splice(delayed, 1)[0]!.millis)
      const dropped = drops.findIndex(({ apiKey }) => apiKey === frame.apiKey)
      if (dropped >= 0) {
        const [drop] = drops.splice(dropped, 1)
        totals.droppedResponses++
        closeConnection(connection)
        Deferred.doneUnsafe(drop!.dropped, Effect.succeed({ ...frame, bytes: piece.bytes.length }))
        counted()
        return
      }
    }
    const { cut } = flow
    const bytes = cut === undefined ? piece.bytes : piece.bytes.subarray(0, cut.remaining)
    yield* write(to, bytes)
    totals[direction === "requests" ? "requestBytes" : "responseBytes"] += bytes.length
    // A frame that was cut short does not count: the other side never got all of it.
    if (frame !== undefined && bytes.length === piece.bytes.length) {
      increment(direction === "requests" ? totals.requestFrames : totals.responseFrames, frame.apiKey)
    }
    if (cut !== undefined) {
      cut.remaining -= bytes.length
      if (cut.remaining <= 0) {
        flow.cut = undefined
        // The last bytes must arrive before the connection ends, or the cut would come too early.
        yield* end(to)
        closeConnection(connection)
        Deferred.doneUnsafe(cut.done, Effect.void)
      }
    }
    counted()
  })

  const pump = Effect.fnUntraced(function* (
    direction: Direction,
    connection: Connection,
    pieces: Queue.Dequeue<Piece>,
    handled: (piece: Piece) => void
  ) {
    const flow = flows[direction]
    const to = direction === "requests" ? connection.upstream : connection.client
    while (true) {
      const piece = yield* Queue.take(pieces)
      const waitMillis = flow.delayMillis === 0 ? 0 : piece.arrivedMillis + flow.delayMillis - Date.now()
      if (waitMillis > 0) yield* Effect.sleep(waitMillis)
      yield* flow.released.await
      if (flow.swallow) {
        connection.tainted = true
        if (piece._tag === "Bytes") totals.swallowedBytes += piece.bytes.length
        counted()
      } else if (piece._tag === "Bytes") {
        yield* deliver(direction, connection, to, piece)
      } else if (piece._tag === "End") {
        return yield* end(to)
      } else {
        return resetConnection(connection)
      }
      handled(piece)
    }
  })

  const handleConnection = Effect.fnUntraced(function* (client: net.Socket) {
    const upstream = net.connect({
      host: upstreamAddress.host,
      port: upstreamAddress.port,
      allowHalfOpen: true,
      noDelay: true
    })
    const connection: Connection = { client, upstream, over: Deferred.makeUnsafe(), tainted: false }
    const queues = { requests: yield* Queue.unbounded<Piece>(), responses: yield* Queue.unbounded<Piece>() }
    const inFlight = new Map<number, number>()

    const toPieces = (direction: Direction) => {
      const split = frameSplitter()
      return (chunk: Buffer): ReadonlyArray<Piece> => {
        const arrivedMillis = Date.now()
        if (!kafka) return [{ _tag: "Bytes", bytes: chunk, arrivedMillis, frame: undefined }]
        return split(chunk).map((bytes) => {
          // Request: length, api key, api version, correlation id. Response: length, correlation id.
          const correlationId = bytes.readInt32BE(direction === "requests" ? 8 : 4)
          const apiKey = direction === "requests" ? bytes.readInt16BE(4) : inFlight.get(correlationId)
          if (direction === "requests") inFlight.set(correlationId, apiKey!)
          else inFlight.delete(correlationId)
          return {
            _tag: "Bytes",
            bytes,
            arrivedMillis,
            frame: apiKey === undefined ? undefined : { apiKey, correlationId }
          }
        })
      }
    }
    const attach = (direction: Direction, from: net.Socket) => {
      const split = toPieces(direction)
      const queue = queues[direction]
      let pendingBytes = 0
      from.on("data", (chunk: Buffer) => {
        try {
          for (const piece of split(chunk)) {
            pendingBytes += piece._tag === "Bytes" ? piece.bytes.length : 0
            Queue.offerUnsafe(queue, piece)
          }
          if (pendingBytes > maxPendingBytes) from.pause()
        } catch {
          resetConnection(connection)
        }
      })
      from.on("end", () => void Queue.offerUnsafe(queue, { _tag: "End", arrivedMillis: Date.now() }))
      from.on("error", () => void Queue.offerUnsafe(queue, { _tag: "Reset", arrivedMillis: Date.now() }))
      return (piece: Piece) => {
        pendingBytes -= piece._tag === "Bytes" ? piece.bytes.length : 0
        if (pendingBytes <= maxPendingBytes && from.isPaused()) from.resume()
      }
    }

    connections.add(connection)
    totals.accepted++
    counted()
    yield* Effect.all(
      [
        pump("requests", connection, queues.requests, attach("requests", client)),
        pump("responses", connection, queues.responses, attach("responses", upstream))
      ],
      { concurrency: "unbounded" }
    ).pipe(
      Effect.raceFirst(Deferred.await(connection.over)),
      Effect.ensuring(
        Effect.sync(() => {
          closeConnection(connection)
          connections.delete(connection)
          counted()
        })
      )
    )
  })

  // Made before the listener, so that at the end the listener closes before the connections' fibers end.
  const runFork = yield* FiberSet.makeRuntime<never, void, never>()
  const onConnection = (socket: net.Socket) => {
    // A reset may come before the fiber has its own listener, and would then end the process.
    socket.on("error", () => {})
    runFork(handleConnection(socket))
  }
  const state = yield* Effect.acquireRelease(
    Effect.map(listenSomewhere(onConnection), (server) => ({ server, listening: true })),
    (state) => Effect.sync(() => state.listening && state.server.close())
  )
  const port = portOf(state.server)
  const refuse = Effect.sync(() => {
    if (state.listening) state.server.close()
    state.listening = false
  })

  const directionsOf = (directions: Direction | "both" = "both"): ReadonlyArray<Direction> =>
    directions === "both" ? ["requests", "responses"] : [directions]

  return {
    host,
    port,
    connections: Effect.sync(() => connections.size),
    counters: Effect.sync(snapshot),
    until: (condition) =>
      Effect.callback((resume) => {
        const now = snapshot()
        if (condition(now)) return resume(Effect.succeed(now))
        const waiter = { condition, resume: (counters: Counters) => resume(Effect.succeed(counters)) }
        waiters.add(waiter)
        return Effect.sync(() => void waiters.delete(waiter))
      }),
    pass: Effect.gen(function* () {
      drops.length = 0
      delays.length = 0
      for (const connection of connections) {
        if (connection.tainted) resetConnection(connection)
      }
      for (const flow of Object.values(flows)) {
        flow.swallow = false
        flow.delayMillis = 0
        flow.cut = undefined
        yield* flow.released.open
      }
      if (!state.listening) {
        state.server = yield* Effect.orDie(listen(port, onConnection))
        state.listening = true
      }
    }),
    blackHole: (directions) =>
      Effect.forEach(
        directionsOf(directions),
        (direction) => {
          flows[direction].swallow = true
          return flows[direction].released.open
        },
        { discard: true }
      ),
    hold: (directions) =>
      Effect.forEach(
        directionsOf(directions),
        (direction) => {
          flows[direction].swallow = false
          return flows[direction].released.close
        },
        { discard: true }
      ),
    refuse,
    reset: Effect.sync(() => {
      const open = [...connections]
      open.forEach(resetConnection)
      return open.length
    }),
    delay: (millis, directions) =>
      Effect.sync(() => {
        for (const direction of directionsOf(directions)) flows[direction].delayMillis = millis
      }),
    cutAfter: ({ bytes, direction }) =>
      Effect.sync(() => {
        const done = Deferred.makeUnsafe<void>()
        flows[direction].cut = { remaining: bytes, done }
        return Deferred.await(done)
      }),
    dropNextResponse: ({ apiKey }) =>
      Effect.sync(() => {
        const dropped = Deferred.makeUnsafe<DroppedResponse>()
        drops.push({ apiKey, dropped })
        return Deferred.await(dropped)
      }),
    delayResponse: (delayed) => Effect.sync(() => void delays.push(delayed))
  }
})

/** A proxy that knows bytes only, on a port of its own. Its connections and its port close with the scope. */
export const make = (options: { readonly upstream: Address }): Effect.Effect<TcpProxy, never, Scope.Scope> =>
  makeProxy(options.upstream, false)

/**
 * A proxy in front of one Kafka broker. It passes whole frames, and can lose or delay single responses.
 *
 * Brokers tell their clients where to connect, so the broker has to advertise this proxy's port: see `LocalKafka.makeProxied`.
 */
export const makeKafka = (options: { readonly upstream: Address }): Effect.Effect<KafkaProxy, never, Scope.Scope> =>
  makeProxy(options.upstream, true)

/** A proxy in front of the database of `url`, and the URL that leads through it. */
export const makePostgres = Effect.fnUntraced(function* (url: Redacted.Redacted) {
  const target = new URL(Redacted.value(url))
  const proxy = yield* make({ upstream: { host: target.hostname, port: Number(target.port) } })
  target.hostname = proxy.host
  target.port = String(proxy.port)
  return { proxy, url: Redacted.make(target.toString()) }
})
