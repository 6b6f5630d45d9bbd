/**
 * The settings of the Kafka broker, and clients of kafkajs whose sockets can be cut.
 *
 * Every producer, consumer and admin gets a kafkajs `Kafka` of its own, used until something goes wrong and then thrown away.
 * Much of kafkajs' own recovery is not to be relied on (a connection that lost a response is used again; a request that
 * is written in the moment of a disconnect never ends; consumers of one `Kafka` and group share their offsets), and a fresh one
 * costs a connection and a metadata request.
 */
import { Context, Effect } from "effect"
import { type ISocketFactory, Kafka, type logCreator, logLevel } from "kafkajs"
import * as net from "node:net"
import { applyPatches, readPartByPart } from "./KafkaPatches.ts"

applyPatches()

/** How to reach Kafka, and what may be done there. */
export class KafkaSettings extends Context.Service<
  KafkaSettings,
  {
    /** `host:port` of one or more brokers to start from. */
    readonly brokers: ReadonlyArray<string>
    /** Stands before topic and group names on the wire. Everything else speaks of them without it. */
    readonly prefix: string
    /** Whether a missing topic is made. */
    readonly createTopics: boolean
    /** Copies of each partition of a topic that is made. */
    readonly replication: number
    /** How long a publish may take in all, connecting included. */
    readonly sendTimeoutMillis: number
    /** How long a consumer may be silent before its partitions go to another one. */
    readonly sessionTimeoutMillis: number
    /** Shows in the brokers' logs and quotas. */
    readonly clientId: string
  }
>()("paid-once/brokers/kafkajs/KafkaSettings") {}

/** Opens a connection. Tests put a proxy between one client and its brokers here. */
export const KafkaConnect = Context.Reference<
  (address: { readonly host: string; readonly port: number }) => net.Socket
>("paid-once/brokers/kafkajs/KafkaConnect", { defaultValue: () => (address) => net.connect(address) })

/** A connection that is set up takes milliseconds; kafkajs' own default. It bounds TCP's part only. */
const connectionTimeoutMillis = 1_000

/** Keeps firewalls from forgetting an idle connection; kafkajs' own value. */
const keepAliveMillis = 60_000

/** Far above the sends that a process has under way, and their retries of metadata; a leak would still show. */
const maxGoodbyes = 256

/** First wait of what kafkajs retries by itself: connecting and metadata here, never a produce request. */
const retryMillis = 50

/** A kafkajs `Kafka` with its sockets. */
export interface Client {
  readonly kafka: Kafka
  /** Destroys the sockets to one broker (`host:port`): requests under way fail, and the next one opens a connection. */
  readonly reset: (broker: string) => void
  /** Destroys all sockets and opens none again: nothing that this client still has to send will be sent. */
  readonly cut: () => void
}

/** Makes clients. kafkajs' log goes to Effect's at debug level: what matters of it comes back as an error to whoever asked. */
export const makeClients = Effect.gen(function* () {
  const { brokers, clientId } = yield* KafkaSettings
  const connect = yield* KafkaConnect
  const context = yield* Effect.context<never>()
  const runSync = Effect.runSyncWith(context)
  let opened = 0

  const log: logCreator =
    () =>
    ({ label, log: { message, ...details }, namespace }) =>
      runSync(Effect.logDebug(`kafkajs ${label} ${namespace}: ${message}`, details))

  /** A client that is connected to nothing yet. A request that is not answered within `requestTimeoutMillis` fails. */
  const open = ({
    isPartByPart,
    requestTimeoutMillis,
    retries,
    server
  }: {
    readonly requestTimeoutMillis: number
    /** Of connecting, metadata and coordinator look-ups. */
    readonly retries: number
    /** Whether a topic is of use of which some partitions have no leader. */
    readonly isPartByPart: boolean
    /** The only one to start from. */
    readonly server?: string
  }): Client => {
    const sockets = new Map<net.Socket, string>()
    let isCut = false
    // With an error: kafkajs listens for `end` and `error`, and would never hear of a socket that only closes.
    const destroy = (socket: net.Socket) => socket.destroy(new Error("the connection was given up"))
    // Each client starts with another broker: kafkajs always starts with the first one, which may be the one that is down.
    const first = opened++ % brokers.length
    const socketFactory: ISocketFactory = ({ host, onConnect, port }) => {
      if (isCut) throw new Error("the client was given up")
      const socket = connect({ host, port })
      // Sends that fail side by side each say goodbye to the same socket, also while it still connects, and Node would warn of a leak.
      socket.setMaxListeners(maxGoodbyes)
      sockets.set(socket, `${host}:${port}`)
      socket.once("connect", onConnect)
      socket.once("close", () => sockets.delete(socket))
      // Requests are small and go out one after the other: waiting for more to send would only delay them.
      socket.setNoDelay(true)
      socket.setKeepAlive(true, keepAliveMillis)
      return socket
    }
    if (isPartByPart) readPartByPart(socketFactory)
    const kafka = new Kafka({
      clientId,
      brokers: server === undefined ? [...brokers.slice(first), ...brokers.slice(0, first)] : [server],
      connectionTimeout: connectionTimeoutMillis,
      authenticationTimeout: requestTimeoutMillis,
      requestTimeout: requestTimeoutMillis,
      enforceRequestTimeout: true,
      retry: {
        retries: Math.max(retries, brokers.length),
        initialRetryTime: retryMillis,
        maxRetryTime: requestTimeoutMillis
      },
      // kafkajs writes its debug lines for every request: too many to be built and thrown away.
      logLevel: logLevel.INFO,
      logCreator: log,
      socketFactory
    })
    return {
      kafka,
      reset: (broker) => sockets.forEach((address, socket) => (address === broker ? destroy(socket) : undefined)),
      cut: () => {
        isCut = true
        sockets.forEach((_, socket) => destroy(socket))
      }
    }
  }
  return { open }
})

export type Clients = Effect.Success<typeof makeClients>

/**
 * Lets a client say goodbye, which waits for the requests under way, and gives it up after `graceMillis` at the latest.
 * Meant for finalizers: it ends in time where nothing else can be interrupted.
 */
export const close = (client: Client, disconnect: () => Promise<void>, graceMillis: number): Effect.Effect<void> =>
  Effect.tryPromise(disconnect).pipe(
    Effect.ignore,
    Effect.interruptible,
    Effect.timeoutOption(graceMillis),
    Effect.ensuring(Effect.sync(client.cut)),
    Effect.asVoid
  )
