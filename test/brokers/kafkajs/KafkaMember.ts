/** Members of the Kafka broker for tests: each has connections of its own, through a proxy of its own, as a process would. */
import { Context, Effect, Layer, References } from "effect"
import { Kafka, logLevel, Partitioners } from "kafkajs"
import * as net from "node:net"
import { Broker } from "../../../src/brokers/Broker.ts"
import * as KafkaBroker from "../../../src/brokers/kafkajs/KafkaBroker.ts"
import { BrokerHarness } from "../../contracts/BrokerHarness.ts"
import * as TcpProxy from "../../support/TcpProxy.ts"

/** The shortest session that a Kafka allows by default. Two busy cores stand still for a second or two at times. */
export const sessionTimeoutMillis = 6_000

/** Longer than a send takes on a machine that is busy with everything else, a topic's first one included. */
export const sendTimeoutMillis = 10_000

/** For an answer that never comes: it has to be waited for, and what other sends take must stay below it as a rule. */
export const impatientMillis = 1_500

/** Members of these tests share their cluster with others. */
export const prefix = "contract."

const addressOf = (server: string): TcpProxy.Address => {
  const [host, port] = server.split(":")
  return { host: host!, port: Number(port) }
}

export type Settings = Partial<(typeof KafkaBroker.KafkaSettings)["Service"]>

const build = <R>(settings: Settings, connect: Layer.Layer<never, never, R>) =>
  KafkaBroker.layer.pipe(
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
    Effect.map((context) => Context.get(context, Broker))
  )

/** A member whose every connection runs through `proxy`. */
export const make = Effect.fnUntraced(function* (bootstrapServers: string, settings: Settings = {}) {
  // All connections of a single node can go through one proxy; of a larger cluster each node would need its own.
  const server = bootstrapServers.split(",")[0]!
  const proxy = yield* TcpProxy.makeKafka({ upstream: addressOf(server) })
  const connect = Layer.succeed(KafkaBroker.KafkaConnect, () => net.connect(proxy.port, proxy.host))
  return {
    broker: yield* build({ brokers: [server], ...settings }, connect),
    proxy,
    kill: Effect.acquireRelease(proxy.blackHole(), () => proxy.pass)
  }
})

/** A member without a proxy, as the service has it. */
export const makeDirect = (settings: Settings & { readonly brokers: ReadonlyArray<string> }) =>
  Effect.map(build(settings, Layer.empty), (broker) => ({ broker, kill: Effect.void }))

/** How long the simulated outage of a Kafka that is not ours to stop takes: long enough to be run into. */
const outage = "500 millis"

/** The harness of the contract suite. Its broker is shared with other tests, so an outage is one of the members' network only. */
export const harness = (bootstrapServers: string): Layer.Layer<BrokerHarness> =>
  Layer.effect(
    BrokerHarness,
    Effect.sync(() => {
      const proxies = new Set<TcpProxy.KafkaProxy>()
      return BrokerHarness.of({
        member: Effect.gen(function* () {
          const { broker, kill, proxy } = yield* make(bootstrapServers)
          yield* Effect.acquireRelease(
            Effect.sync(() => proxies.add(proxy)),
            () => Effect.sync(() => proxies.delete(proxy))
          )
          return { broker, kill }
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

/** A bare kafkajs client, for what a test itself looks at or writes. */
export const kafkajs = (bootstrapServers: string): Kafka =>
  new Kafka({ clientId: "check", brokers: bootstrapServers.split(","), logLevel: logLevel.NOTHING })

/** A producer of somebody else's. */
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
