/**
 * What is changed of kafkajs: a connection that broke in the middle of an answer is a new one when it is opened again, and a consumer that is
 * stopped ends, whatever it was at.
 */
import { assert, it } from "@effect/vitest"
import { once } from "node:events"
import { createRequire } from "node:module"
import * as net from "node:net"
import { setImmediate as nextTurn } from "node:timers/promises"
import { applyPatches } from "../../src/messaging/broker/KafkaPatches.ts"

interface Connection {
  readonly connect: () => Promise<unknown>
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

applyPatches()

const quiet = () => undefined
const logger = { namespace: () => logger, debug: quiet, error: quiet, info: quiet, warn: quiet }

/** A server that sends each connection the next of these, and a kafkajs connection to it. */
const open = async (...answers: ReadonlyArray<Buffer>) => {
  const sockets: Array<net.Socket> = []
  const server = net.createServer((socket) => {
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
    connectionTimeout: 1_000,
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

it("an answer that was cut off has no part in what comes after the connection is opened again", async () => {
  const whole = Buffer.alloc(12)
  whole.writeInt32BE(8, 0)
  whole.writeInt32BE(7, 4)
  const { client, close, connection, sockets } = await open(Buffer.from([0, 0, 0, 100, 1, 2]), whole)
  try {
    const answered = new Promise<number>((resolve) => {
      connection.requestQueue.fulfillRequest = ({ correlationId }) => resolve(correlationId)
    })
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

it("a consumer that is stopped while its fetchers are made anew ends", async () => {
  let nodes = [1, 2]
  let looks = 0
  let left = false
  const fetches = new Map<number, () => void>()
  const done = () => Promise.resolve()
  const runner = new Runner({
    logger,
    concurrency: 1,
    heartbeatInterval: 1_000,
    instrumentationEmitter: { emit: quiet },
    onCrash: quiet,
    eachBatch: done,
    retry: { initialRetryTime: 1, retries: 2 },
    consumerGroup: {
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
    }
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
