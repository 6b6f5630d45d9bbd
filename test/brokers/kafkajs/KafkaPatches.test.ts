/**
 * What is changed of kafkajs: a connection that broke in the middle of an answer is a new one when it is opened again, and a consumer that is
 * stopped ends, whatever it was at.
 */
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

const ConsumerGroup = createRequire(import.meta.url)("kafkajs/src/consumer/consumerGroup.js") as new (
  options: object
) => { memberId: string | null }

applyPatches()

const quiet = () => undefined
const logger = { namespace: () => logger, debug: quiet, error: quiet, info: quiet, warn: quiet }

/** A server that sends each connection the next of these and leaves its end open, and a kafkajs connection to it. */
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

/** Waits until the socket is gone and kafkajs knows it. */
const broken = async (connection: Connection, socket: net.Socket) => {
  await new Promise((resolve) => socket.once("close", resolve))
  while (connection.isConnected()) await nextTurn()
}

/** The answer to request 7, and what comes of one of 100 bytes that is cut off. */
const whole = Buffer.from([0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 0])
const half = Buffer.from([0, 0, 0, 100, 1, 2])

/** The number of the first request that is answered. */
const firstAnswered = (connection: Connection) =>
  new Promise<number>((resolve) => {
    connection.requestQueue.fulfillRequest = ({ correlationId }) => resolve(correlationId)
  })

it("an answer that was cut off has no part in what comes after the connection is opened again", async () => {
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

it("an answer that can't be read ends its connection, and not the process", async () => {
  // Two bytes, and an answer begins with a number of four.
  const { client, close, connection } = await open(Buffer.from([0, 0, 0, 2, 1, 2]))
  try {
    await connection.connect()
    await broken(connection, client[0]!)
  } finally {
    close()
  }
})

it("a connection that is opened again hears nothing of the socket before", async () => {
  const { client, close, connection, sockets } = await open()
  try {
    await connection.connect()
    // kafkajs' own way: it says goodbye and does not wait for an answer.
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

it("who asks for a connection that is being opened waits for that one", async () => {
  const { client, close, connection } = await open()
  try {
    await Promise.all([connection.connect(), connection.connect()])
    assert.strictEqual(client.length, 1)
  } finally {
    close()
  }
})

const done = () => Promise.resolve()

/** kafkajs' loop of a consumer, over a group that the test plays. */
const runnerOf = (consumerGroup: object) =>
  new Runner({
    logger,
    concurrency: 1,
    heartbeatInterval: 1_000,
    instrumentationEmitter: { emit: quiet },
    onCrash: quiet,
    eachBatch: done,
    retry: { initialRetryTime: 1, retries: 2 },
    consumerGroup
  })

it("a consumer that is stopped while its fetchers are made anew ends", async () => {
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
      // It would go on for ever, and nothing in this process could end it.
      if (++looks > 1_000) throw new Error("the fetchers never end")
      return nodes
    },
    fetch: (node: number) => new Promise((resolve) => fetches.set(node, () => resolve([])))
  })
  await runner.start()
  while (fetches.size < 2) await nextTurn()
  // One fetcher sees that the second broker is gone, and waits for the other fetcher's end, as does the stop …
  nodes = [1]
  fetches.get(1)!()
  await nextTurn()
  const stopped = runner.stop()
  // … and when that comes, new ones are made.
  fetches.get(2)!()
  await stopped
  assert.isTrue(left)
  assert.isBelow(looks, 20)
})

it("a consumer that its group has forgotten, and that fails to join it again, does not go on without it", async () => {
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
        // What kafkajs makes of the coordinator's answer to a heartbeat.
        throw Object.assign(new Error("who is that?"), { type: "UNKNOWN_MEMBER_ID" })
      }
      if (fetches > 100) isMember.reject(new Error("it fetches, and is no member"))
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
