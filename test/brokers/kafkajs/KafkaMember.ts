/** Members of the Kafka broker for tests. Like a process, each has its own connections, here through its own proxy. */
import { Context, Effect, Layer, References, type Scope } from "effect"
import { Kafka, logLevel, Partitioners } from "kafkajs"
import * as net from "node:net"
import { Broker } from "../../../src/brokers/Broker.ts"
import * as KafkaBroker from "../../../src/brokers/kafkajs/KafkaBroker.ts"
import * as KafkaProgress from "../../../src/brokers/kafkajs/KafkaProgress.ts"
import * as KafkaTopicReader from "../../../src/brokers/kafkajs/KafkaTopicReader.ts"
import { TopicReader } from "../../../src/brokers/TopicReader.ts"
import { GroupProgress } from "../../../src/brokers/GroupProgress.ts"
import { BrokerHarness } from "../../contracts/BrokerHarness.ts"
import * as TcpProxy from "../../support/TcpProxy.ts"

/** The shortest session that Kafka allows by default. Two busy cores stand still for a second or two at times. */
export const sessionTimeoutMillis = 6_000

/** Longer than a send takes on a busy machine, including the first one to a topic. */
export const sendTimeoutMillis = 10_000

/** For tests in which a response never comes. They wait for it, and other sends should stay below it. */
export const impatientMillis = 1_500

/** Members of these tests share their cluster with others. */
export const prefix = "contract."

const addressOf = (server: string): TcpProxy.Address => {
  const [host, port] = server.split(":")
  return { host: host!, port: Number(port) }
}

export type Settings = Partial<(typeof KafkaBroker.KafkaSettings)["Service"]>

const build = <R>(settings: Settings, connect: Layer.Layer<never, never, R>) =>
  Layer.mergeAll(KafkaBroker.layer, KafkaProgress.layer, KafkaTopicReader.layer).pipe(
    Layer.provide(
      Layer.succeed(KafkaBroker.KafkaSettings, {
        brokers: [],
        prefix,
        createTopics: true,
        replication: 1,
        sendTimeoutMillis,
        sessionTimeoutMillis,
        clientId: "test",
        ...settings
      })
    ),
    Layer.provide(connect),
    // Two members must not share a client.
    Layer.fresh,
    Layer.build,
    Effect.map((context) => ({
      broker: Context.get(context, Broker),
      progress: Context.get(context, GroupProgress),
      topics: Context.get(context, TopicReader)
    }))
  )

/** A member with all connections through `proxy`. */
export const make = (bootstrapServers: string, settings: Settings = {}) =>
  makeThrough(TcpProxy.makeKafka, bootstrapServers, settings)

const makeThrough = Effect.fnUntraced(function* <P extends TcpProxy.TcpProxy>(
  makeProxy: (options: { readonly upstream: TcpProxy.Address }) => Effect.Effect<P, never, Scope.Scope>,
  bootstrapServers: string,
  settings: Settings
) {
  // One proxy serves a single node. In a larger cluster each node would need its own.
  const server = bootstrapServers.split(",")[0]!
  const proxy = yield* makeProxy({ upstream: addressOf(server) })
  const connect = Layer.succeed(KafkaBroker.KafkaConnect, () => net.connect(proxy.port, proxy.host))
  return {
    ...(yield* build({ brokers: [server], ...settings }, connect)),
    proxy,
    kill: Effect.acquireRelease(proxy.blackHole(), () => proxy.pass)
  }
})

/** A member without a proxy, as in the service. */
export const makeDirect = (settings: Settings & { readonly brokers: ReadonlyArray<string> }) =>
  Effect.map(build(settings, Layer.empty), (member) => ({ ...member, kill: Effect.void }))

/** The length of a simulated outage, where the test must not stop the Kafka: long enough to be noticed. */
const outage = "500 millis"

/** The harness of the contract suite. Other tests share its broker, so an outage cuts only the members' network. */
export const harness = (bootstrapServers: string, settings: Settings = {}): Layer.Layer<BrokerHarness> =>
  Layer.effect(
    BrokerHarness,
    Effect.sync(() => {
      const proxies = new Set<TcpProxy.TcpProxy>()
      // Nobody in between reads what is encrypted.
      const makeProxy = settings.access?.tls === undefined ? TcpProxy.makeKafka : TcpProxy.make
      return BrokerHarness.of({
        member: Effect.gen(function* () {
          const { proxy, ...member } = yield* makeThrough(makeProxy, bootstrapServers, settings)
          yield* Effect.acquireRelease(
            Effect.sync(() => proxies.add(proxy)),
            () => Effect.sync(() => proxies.delete(proxy))
          )
          return member
        }),
        restartBroker: Effect.suspend(() =>
          Effect.forEach(
            proxies,
            (proxy) => Effect.all([proxy.refuse, proxy.reset, Effect.sleep(outage), proxy.pass], { discard: true }),
            {
              concurrency: "unbounded",
              discard: true
            }
          )
        )
      })
    })
  ).pipe(Layer.provideMerge(Layer.succeed(References.MinimumLogLevel, "Warn")))

/** A plain kafkajs client, for a test's own requests. */
export const kafkajs = (bootstrapServers: string): Kafka =>
  new Kafka({ clientId: "check", brokers: bootstrapServers.split(","), logLevel: logLevel.NOTHING })

/** A foreign producer. */
export const foreignProducer = (bootstrapServers: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const producer = kafkajs(bootstrapServers).producer({
        allowAutoTopicCreation: false,
        createPartitioner: Partitioners.DefaultPartitioner
      })
      await producer.connect()
      return producer
    }),
    (producer) => Effect.promise(() => producer.disconnect())
  )

export const admin = (bootstrapServers: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const admin = kafkajs(bootstrapServers).admin()
      await admin.connect()
      return admin
    }),
    (admin) => Effect.promise(() => admin.disconnect())
  )
