/** The repairs of kafkajs that need no broker. Each test is red, or hangs, without its repair. */
import { assert, it } from "@effect/vitest"
import { once } from "node:events"
import { createRequire } from "node:module"
import * as net from "node:net"
import { setImmediate as nextTurn } from "node:timers/promises"
import { applyPatches } from "../../../src/brokers/kafkajs/KafkaPatches.ts"

interface Connection {
  readonly connect: () => Promise<unknown>
  readonly disconnect: () => Promise<unknown>
  readonly isConnected: () => boolean
  readonly requestQueue: { fulfillRequest: (answer: { readonly correlationId: number }) => void }
}
const Connection = createRequire(import.meta.url)("kafkajs/src/network/connection.js") as new (
  options: object
) => Connection

interface Runner {
  readonly start: () => Promise<void>
  readonly stop: () => Promise<void>
}
const Runner = createRequire(import.meta.url)("kafkajs/src/consumer/runner.js") as new (options: object) => Runner

interface RequestQueue {
  readonly pending: Array<object>
  readonly throttleCheckTimeoutId: object | null
  maxInFlightRequests: number
  throttledUntil: number
  readonly checkPendingRequests: () => void
  readonly destroy: () => void
}
const RequestQueue = createRequire(import.meta.url)("kafkajs/src/network/requestQueue/index.js") as new (
  options: object
) => RequestQueue

interface BrokerPool {
  readonly withBroker: <A>(ask: (one: { readonly nodeId: string }) => Promise<A>) => Promise<A>
}
const BrokerPool = createRequire(import.meta.url)("kafkajs/src/cluster/brokerPool.js") as {
  readonly prototype: BrokerPool
}

interface ConsumerGroup {
  memberId: string | null
  offsetManager: object
  readonly subscriptionState: {
    readonly assign: (
      topics: ReadonlyArray<{ readonly topic: string; readonly partitions: ReadonlyArray<number> }>
    ) => void
  }
}
const ConsumerGroup = createRequire(import.meta.url)("kafkajs/src/consumer/consumerGroup.js") as new (
  options: object
) => ConsumerGroup

applyPatches()

const quiet = () => undefined
const logger = { namespace: () => logger, debug: quiet, error: quiet, info: quiet, warn: quiet }

/** A server that sends each connection its own answer and leaves it open, and a kafkajs connection to the server. */
const open = async (...answers: ReadonlyArray<Buffer>) => {
  const sockets: Array<net.Socket> = []
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket)
    socket.on("error", quiet)
    const answer = answers[sockets.length - 1]
    if (answer !== undefined) socket.write(answer)
  })
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  const { port } = server.address() as net.AddressInfo
  const client: Array<net.Socket> = []
  const connection = new Connection({
    host: "127.0.0.1",
    port,
    logger,
    clientId: "test",
    requestTimeout: 1_000,
    connectionTimeout: 30_000,
    socketFactory: ({ host, onConnect, port }: { host: string; onConnect: () => void; port: number }) => {
      const socket = net.connect(port, host, onConnect)
      client.push(socket)
      return socket
    }
  })
  const close = () => {
    for (const socket of [...sockets, ...client]) socket.destroy()
    server.close()
  }
  return { client, close, connection, sockets }
}

/** Waits until the socket is closed and kafkajs has noticed it. */
const broken = async (connection: Connection, socket: net.Socket) => {
  await new Promise((resolve) => socket.once("close", resolve))
  while (connection.isConnected()) await nextTurn()
}

/** The response to request 7, and the beginning of a response of 100 bytes. */
const whole = Buffer.from([0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 0])
const half = Buffer.from([0, 0, 0, 100, 1, 2])

/** The correlation id of the first response that is parsed. */
const firstAnswered = (connection: Connection) =>
  new Promise<number>((resolve) => {
    connection.requestQueue.fulfillRequest = ({ correlationId }) => resolve(correlationId)
  })

it("half a response is discarded when its connection is opened again", async () => {
  const { client, close, connection, sockets } = await open(half, whole)
  try {
    const answered = firstAnswered(connection)
    await connection.connect()
    await once(client[0]!, "data")
    const over = broken(connection, client[0]!)
    sockets[0]!.resetAndDestroy()
    await over
    await connection.connect()
    assert.strictEqual(await answered, 7)
  } finally {
    close()
  }
})

it("a response that can't be parsed closes its connection, and does not end the process", async () => {
  // Two bytes, and a response begins with a correlation id of four bytes.
  const { client, close, connection } = await open(Buffer.from([0, 0, 0, 2, 1, 2]))
  try {
    await connection.connect()
    await broken(connection, client[0]!)
  } finally {
    close()
  }
})

it("a connection that is opened again ignores the events of its previous socket", async () => {
  const { client, close, connection, sockets } = await open()
  try {
    await connection.connect()
    // kafkajs ends the socket and does not wait for the other side.
    await connection.disconnect()
    await connection.connect()
    const over = once(client[0]!, "close")
    sockets[0]!.end(half)
    await over
    await nextTurn()
    assert.isTrue(connection.isConnected())
    const answered = firstAnswered(connection)
    while (sockets[1] === undefined) await nextTurn()
    sockets[1].write(whole)
    assert.strictEqual(await answered, 7)
  } finally {
    close()
  }
})

it("concurrent callers of connect share one socket", async () => {
  const { client, close, connection } = await open()
  try {
    await Promise.all([connection.connect(), connection.connect()])
    assert.strictEqual(client.length, 1)
  } finally {
    close()
  }
})

it("a connection polls its request queue only while requests wait or the broker throttles it", () => {
  const queueWith = (state: Partial<RequestQueue>) => {
    const queue = Object.assign(new RequestQueue({ logger, maxInFlightRequests: 0 }), state)
    queue.checkPendingRequests()
    const polls = queue.throttleCheckTimeoutId !== null
    queue.destroy()
    return polls
  }
  assert.isFalse(queueWith({}))
  assert.isTrue(queueWith({ pending: [{}] }))
  assert.isTrue(queueWith({ throttledUntil: Date.now() + 60_000 }))
})

it("a question that any broker can answer goes to connected brokers first, and to the next one after a failure", async () => {
  const asked: Array<string> = []
  const poolOf = (unreachable: ReadonlyArray<string>) =>
    Object.assign(Object.create(BrokerPool.prototype) as BrokerPool, {
      brokers: Object.fromEntries(["1", "2", "3"].map((nodeId) => [nodeId, { isConnected: () => nodeId === "2" }])),
      findBroker: ({ nodeId }: { nodeId: string }) => {
        asked.push(nodeId)
        return unreachable.includes(nodeId) ? Promise.reject(new Error(`${nodeId} is down`)) : Promise.resolve({})
      }
    })
  assert.strictEqual(await poolOf(["2", "3"]).withBroker(({ nodeId }) => Promise.resolve(nodeId)), "1")
  assert.strictEqual(asked[0], "2")
  const failure = await poolOf(["1", "2", "3"])
    .withBroker(done)
    .catch((cause: Error) => cause.message)
  assert.match(String(failure), /^[13] is down$/)
})

const done = () => Promise.resolve()

interface EachBatch {
  readonly batch: { readonly partition: number }
  readonly resolveOffset: (offset: string) => void
}

/** kafkajs' consumer loop over a consumer group of the test. */
const runnerOf = (consumerGroup: object, eachBatch: (payload: EachBatch) => Promise<void> = done) =>
  new Runner({
    logger,
    concurrency: 1,
    heartbeatInterval: 1_000,
    instrumentationEmitter: { emit: quiet },
    onCrash: quiet,
    eachBatch,
    eachBatchAutoResolve: false,
    retry: { initialRetryTime: 1, retries: 2 },
    consumerGroup
  })

it("a consumer that is stopped while it recreates its fetchers ends", async () => {
  let nodes = [1, 2]
  let looks = 0
  let left = false
  const fetches = new Map<number, () => void>()
  const runner = runnerOf({
    connect: done,
    joinAndSync: done,
    heartbeat: done,
    leave: () => {
      left = true
      return done()
    },
    getNodeIds: () => {
      // Without the repair the loop never yields, so no timeout could end this test.
      if (++looks > 1_000) throw new Error("the fetchers never end")
      return nodes
    },
    fetch: (node: number) => new Promise((resolve) => fetches.set(node, () => resolve([])))
  })
  await runner.start()
  while (fetches.size < 2) await nextTurn()
  // One fetcher sees that the second broker is gone and waits for the other fetcher, as the stop does …
  nodes = [1]
  fetches.get(1)!()
  await nextTurn()
  const stopped = runner.stop()
  // … and when that one ends, the fetchers are recreated.
  fetches.get(2)!()
  await stopped
  assert.isTrue(left)
  assert.isBelow(looks, 20)
})

it("a consumer that its group has forgotten, and whose rejoin fails, joins again before it fetches on", async () => {
  let joins = 0
  let fetches = 0
  const isMember = Promise.withResolvers<number>()
  const group = Object.assign(new ConsumerGroup({ logger, retry: {} }), {
    connect: done,
    leave: done,
    getNodeIds: () => [1],
    joinAndSync: () => {
      joins += 1
      if (joins === 2) return Promise.reject(new Error("the coordinator is moving"))
      group.memberId = `member ${joins}`
      if (joins > 2) isMember.resolve(fetches)
      return done()
    },
    fetch: async () => {
      fetches += 1
      await nextTurn()
      if (fetches === 1) {
        // kafkajs' error for the coordinator's response to a heartbeat.
        throw Object.assign(new Error("who is that?"), { type: "UNKNOWN_MEMBER_ID" })
      }
      if (fetches > 100) isMember.reject(new Error("it fetches and is no member"))
      return []
    }
  })
  const runner = runnerOf(group)
  await runner.start()
  try {
    assert.isBelow(await isMember.promise, 5)
  } finally {
    await runner.stop()
  }
})

it("batches of an older generation are dropped, also those that wait for a worker or have control records only", async () => {
  const partitions = [0, 1, 2]
  const message = (partition: number, isControlRecord: boolean) => ({
    offset: "7",
    key: `${partition}`,
    isControlRecord
  })
  /** A generation's offsets, and what was resolved in it. */
  const generation = () => {
    const resolved: Array<number> = []
    return {
      resolved,
      resolveOffsets: done,
      committedOffsets: () => ({ orders: { 0: "0", 1: "0", 2: "0" } }),
      nextOffset: () => 0,
      resolveOffset: ({ partition }: { readonly partition: number }) => void resolved.push(partition),
      commitOffsetsIfNecessary: done,
      commitOffsets: done
    }
  }
  const [old, current] = [generation(), generation()]
  const fetched = Promise.withResolvers<void>()
  let fetches = 0
  const fetch = async () => {
    fetches += 1
    if (fetches > 1) {
      fetched.resolve()
      await nextTurn()
      return { responses: [] }
    }
    const ofPartition = (partition: number) => ({
      partition,
      highWatermark: "8",
      abortedTransactions: [],
      // The last one has no record for a reader.
      messages: [message(partition, partition === 2)]
    })
    return { responses: [{ topicName: "orders", partitions: partitions.map(ofPartition) }] }
  }
  const group = Object.assign(
    new ConsumerGroup({
      logger,
      retry: {},
      topics: ["orders"],
      maxWaitTimeInMs: 1,
      cluster: {
        connect: done,
        refreshMetadataIfNecessary: done,
        getNodeIds: () => [1],
        findTopicPartitionMetadata: () => partitions.map((partitionId) => ({ partitionId, leader: 1 })),
        findBroker: () => Promise.resolve({ fetch })
      },
      instrumentationEmitter: { emit: quiet }
    }),
    { memberId: "member", joinAndSync: done, heartbeat: done, leave: done, offsetManager: old }
  )
  group.subscriptionState.assign([{ topic: "orders", partitions }])
  const handled: Array<number> = []
  const runner = runnerOf(group, async ({ batch, resolveOffset }: EachBatch) => {
    handled.push(batch.partition)
    resolveOffset("7")
    // Another fetcher rejoins while the other batches of this fetch wait for their worker.
    await nextTurn()
    group.offsetManager = current
  })
  await runner.start()
  await fetched.promise
  await runner.stop()
  assert.deepStrictEqual(handled, [0])
  assert.deepStrictEqual([old.resolved, current.resolved], [[0], []])
})
