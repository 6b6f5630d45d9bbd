/**
 * The settings of the Kafka broker, and kafkajs clients whose sockets can be destroyed.
 *
 * Every producer, consumer and admin has its own kafkajs `Kafka`, which is discarded after a failure. A new client costs a connection and a metadata
 * request. The recovery of kafkajs itself is not reliable:
 *
 * - It reuses a connection that has lost a response.
 * - A request that is written during a disconnect never settles.
 * - Consumers of one `Kafka` and group share their offsets.
 */
import { Context, Effect } from "effect"
import { type ISocketFactory, Kafka, type logCreator, logLevel } from "kafkajs"
import * as net from "node:net"
import { type KafkaAccess, makeSecure, saslOptions } from "./KafkaAccess.ts"
import { applyPatches } from "./KafkaPatches.ts"
import { acceptPartialMetadataOf } from "./patches/Metadata.ts"

applyPatches()

/** How to reach Kafka, and how to use it. */
export class KafkaSettings extends Context.Service<
  KafkaSettings,
  {
    /** `host:port` of one or more brokers to start from. */
    readonly brokers: ReadonlyArray<string>
    /** Put before the names of topics and groups on the wire, and only there. */
    readonly prefix: string
    /** Whether a missing topic is created. */
    readonly createTopics: boolean
    /** The replication factor of a topic that is created. */
    readonly replication: number
    /** How long a publish may take in total, including the connection. */
    readonly sendTimeoutMillis: number
    /** How long a consumer may be silent before the group assigns its partitions to another member. */
    readonly sessionTimeoutMillis: number
    /** Shows in the brokers' logs and quotas. */
    readonly clientId: string
    /** How this process and the brokers prove who they are. Default: not at all. */
    readonly access?: KafkaAccess
  }
>()("paid-once/brokers/kafkajs/KafkaSettings") {}

/** Opens a connection. Tests put a proxy between one client and its brokers here. */
export const KafkaConnect = Context.Reference<
  (address: { readonly host: string; readonly port: number }) => net.Socket
>("paid-once/brokers/kafkajs/KafkaConnect", { defaultValue: () => (address) => net.connect(address) })

/** For the TCP handshake alone, which takes milliseconds; kafkajs' default. */
const connectionTimeoutMillis = 1_000

/** With the handshake of TLS: two more round trips, and signatures on machines that may be busy. */
const tlsTimeoutMillis = 3_000

/**
 * How long before the end of its session a user is proved again; kafkajs' default. Above the longest wait of a request: a broker that reads it after the
 * session's end closes the connection.
 */
const reauthenticateMillis = 10_000

/** Keeps firewalls from dropping an idle connection; kafkajs' default. */
const keepAliveMillis = 60_000

/** Far above the number of concurrent sends of a process and their metadata requests. A leak would still show. */
const maxListeners = 256

/** The first delay of kafkajs' own retries: of connections and metadata, never of a produce request. */
const retryMillis = 50

/** A kafkajs `Kafka` with its sockets. */
export interface Client {
  readonly kafka: Kafka
  /** Destroys the sockets to one broker (`host:port`): requests in flight fail, and the next request opens a connection. */
  readonly reset: (broker: string) => void
  /** Destroys all sockets and opens no more: nothing that this client has queued will be sent. */
  readonly cut: () => void
}

/** Makes clients. kafkajs' log lines become debug lines: every failure that matters is returned as an error, too. */
export const makeClients = Effect.gen(function* () {
  const { access = {}, brokers, clientId } = yield* KafkaSettings
  const secure = makeSecure(access)
  const connect = yield* KafkaConnect
  const context = yield* Effect.context<never>()
  const runSync = Effect.runSyncWith(context)
  let opened = 0

  const log: logCreator =
    () =>
    ({ label, log: { message, ...details }, namespace }) =>
      runSync(Effect.logDebug(`kafkajs ${label} ${namespace}: ${message}`, details))

  /** A client without connections. A request without a response within `requestTimeoutMillis` fails. */
  const open = ({
    acceptsPartialMetadata,
    requestTimeoutMillis,
    retries,
    server
  }: {
    readonly requestTimeoutMillis: number
    /** How often connecting, metadata and coordinator requests are retried. */
    readonly retries: number
    /** Whether metadata of a topic is accepted in which some partitions have no leader. */
    readonly acceptsPartialMetadata: boolean
    /** The only bootstrap server, `host:port`. Default: all of them, in rotation. */
    readonly server?: string
  }): Client => {
    const sockets = new Map<net.Socket, string>()
    let isCut = false
    // With an error: kafkajs listens for `end` and `error`, and would miss a socket that only closes.
    const destroy = (socket: net.Socket) => socket.destroy(new Error("the connection was given up"))
    // Each client starts with another broker. kafkajs always starts with the first one, and that one may be down.
    const first = opened++ % brokers.length
    const socketFactory: ISocketFactory = ({ host, onConnect, port }) => {
      if (isCut) throw new Error("the client was given up")
      const plain = connect({ host, port })
      // Requests are small and sequential: Nagle's algorithm would only delay them.
      plain.setNoDelay(true)
      plain.setKeepAlive(true, keepAliveMillis)
      const socket = secure === undefined ? plain : secure(plain, host)
      // Concurrent sends that fail each add a listener to the same socket, and Node would warn of a leak.
      socket.setMaxListeners(maxListeners)
      sockets.set(socket, `${host}:${port}`)
      socket.once(secure === undefined ? "connect" : "secureConnect", onConnect)
      socket.once("close", () => {
        sockets.delete(socket)
        plain.destroy()
      })
      return socket
    }
    if (acceptsPartialMetadata) acceptPartialMetadataOf(socketFactory)
    const kafka = new Kafka({
      clientId,
      brokers: server === undefined ? [...brokers.slice(first), ...brokers.slice(0, first)] : [server],
      connectionTimeout: secure === undefined ? connectionTimeoutMillis : tlsTimeoutMillis,
      ...saslOptions(access),
      authenticationTimeout: requestTimeoutMillis,
      reauthenticationThreshold: reauthenticateMillis,
      requestTimeout: requestTimeoutMillis,
      enforceRequestTimeout: true,
      retry: {
        retries: Math.max(retries, brokers.length),
        initialRetryTime: retryMillis,
        maxRetryTime: requestTimeoutMillis
      },
      // kafkajs builds debug lines for every request: too many to throw away.
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
 * Disconnects a client, which waits for the requests in flight, and destroys its sockets after `graceMillis` at the latest. For
 * finalizers: it ends in time although finalizers can't be interrupted.
 */
export const close = (client: Client, disconnect: () => Promise<void>, graceMillis: number): Effect.Effect<void> =>
  Effect.tryPromise(disconnect).pipe(
    Effect.ignore,
    Effect.interruptible,
    Effect.timeoutOption(graceMillis),
    Effect.ensuring(Effect.sync(client.cut)),
    Effect.asVoid
  )
