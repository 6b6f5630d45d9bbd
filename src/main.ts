/**
 * The service as layers. This file goes from the database up, as a start does; `service`, at its end, lists the parts the other way
 * round, which is the order of a clean stop: HTTP, consumers, tasks, dispatcher, broker, connections, Postgres. Each role brings its part of
 * health along.
 */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Console, Context, Effect, Layer } from "effect"
import * as Path from "node:path"
import { CancelOrder } from "./application/CancelOrder.ts"
import { Gateway, GatewaySettings } from "./application/Gateway.ts"
import { GatewayWebhook, WebhookSettings } from "./application/GatewayWebhook.ts"
import { Idempotency } from "./application/Idempotency.ts"
import * as FileTransport from "./application/mail/FileTransport.ts"
import { MailDeliveries } from "./application/mail/MailDeliveries.ts"
import * as SmtpTransport from "./application/mail/SmtpTransport.ts"
import { Orders } from "./application/Orders.ts"
import { PaymentOutcomes } from "./application/PaymentOutcomes.ts"
import * as PaymentMetrics from "./application/PaymentMetrics.ts"
import { Payments } from "./application/Payments.ts"
import { PayOrder } from "./application/PayOrder.ts"
import { PlaceOrder } from "./application/PlaceOrder.ts"
import { RecoverPayment, handler as recoverPayment } from "./application/RecoverPayment.ts"
import { RefundOrder } from "./application/RefundOrder.ts"
import { Reports } from "./application/Reports.ts"
import { analytics } from "./application/subscribers/Analytics.ts"
import { billing } from "./application/subscribers/Billing.ts"
import { inventory } from "./application/subscribers/Inventory.ts"
import { receipts } from "./application/subscribers/Receipts.ts"
import { email } from "./application/tasks/Email.ts"
import { report } from "./application/tasks/Report.ts"
import { Subscribers, Timeline } from "./application/Timeline.ts"
import * as StrandedPayments from "./application/StrandedPayments.ts"
import * as Banner from "./Banner.ts"
import type { AppConfig, Role } from "./Config.ts"
import { eventTypes, ordersTopic } from "./domain/Events.ts"
import * as BrokerHealth from "./http/BrokerHealth.ts"
import * as DispatcherHealth from "./http/DispatcherHealth.ts"
import { HealthParts, Readiness } from "./http/Health.ts"
import * as HttpServer from "./http/HttpServer.ts"
import * as InboxHealth from "./http/InboxHealth.ts"
import * as TopicsHealth from "./http/TopicsHealth.ts"
import * as Availability from "./brokers/Availability.ts"
import * as EmbeddedBroker from "./brokers/embedded/EmbeddedBroker.ts"
import * as KafkaBroker from "./brokers/kafkajs/KafkaBroker.ts"
import { Inbox } from "./inbox/Inbox.ts"
import { InboxDeadLetters } from "./operations/InboxDeadLetters.ts"
import { InboxReport } from "./operations/InboxReport.ts"
import * as Consumers from "./main/Consumers.ts"
import * as Maintenance from "./operations/Maintenance.ts"
import { DeadLetters } from "./operations/DeadLetters.ts"
import { Dispatcher } from "./outbox/Dispatcher.ts"
import { History } from "./operations/History.ts"
import { dispatcherDatabase, LaneWorkers } from "./outbox/LaneWorkers.ts"
import { Outbox } from "./outbox/Outbox.ts"
import * as OutboxMetrics from "./operations/OutboxMetrics.ts"
import { OutboxQueue } from "./outbox/OutboxQueue.ts"
import { OutboxReport } from "./operations/OutboxReport.ts"
import { Publisher } from "./outbox/Publisher.ts"
import * as PublishSpans from "./operations/PublishSpans.ts"
import { TopicChecks } from "./operations/TopicChecks.ts"
import { LaneWakeup } from "./outbox/LaneWakeup.ts"
import { TaskClaim } from "./tasks/TaskClaim.ts"
import { TaskFinish } from "./tasks/TaskFinish.ts"
import type { TaskHandler } from "./tasks/TaskHandler.ts"
import { TaskLeases } from "./tasks/TaskLeases.ts"
import { Tasks } from "./tasks/Tasks.ts"
import { TaskWakeup } from "./tasks/TaskWakeup.ts"
import { workerConnections, TaskWorkers } from "./tasks/TaskWorkers.ts"
import * as PidFile from "./platform/PidFile.ts"
import { ControlConnection } from "./platform/ControlConnection.ts"
import { DatabaseSettings } from "./platform/DatabaseSettings.ts"
import * as Database from "./postgres/Database.ts"
import * as EmbeddedPostgres from "./postgres/embedded/EmbeddedPostgres.ts"
import { Migrated, setOf } from "./postgres/Migrations.ts"
import * as PoolMetrics from "./operations/PoolMetrics.ts"
import { Ownership } from "./platform/Ownership.ts"
import { Wakeups } from "./platform/Wakeups.ts"
import { Fibers } from "./platform/Supervised.ts"
import * as Telemetry from "./platform/Telemetry.ts"
import { BooksSettings } from "./sandbox/Books.ts"
import { GatewayServer, GatewayServerSettings } from "./sandbox/GatewayServer.ts"
import { settings } from "./Settings.ts"

/** The checkout: migrations are read from it. */
export const root = Path.resolve(import.meta.dirname, "..")

/** Everyone who reads the orders topic. A new subscriber is a file of its own and a line here. */
const subscribers = [receipts, inventory, billing, analytics]

/** The names of the consumers. */
export const consumerNames: ReadonlyArray<string> = subscribers.map(({ name }) => name)

/** Every kind of task. A new one is a file of its own and a line here. */
const taskHandlers = (config: AppConfig) => [
  email,
  report,
  recoverPayment({
    delaysMillis: config.paymentRecoverDelaysMillis,
    gatewayTimeoutMillis: config.gatewayTimeoutMillis
  })
]
type TaskNeeds = ReturnType<typeof taskHandlers>[number] extends TaskHandler<infer R> ? R : never

/** The database of DATABASE_URL, or the embedded one, which the last process of ours to leave stops. */
const databaseSettings = (config: AppConfig) =>
  config.databaseUrl !== undefined
    ? DatabaseSettings.layerOf({ url: config.databaseUrl })
    : Layer.unwrap(
        Effect.map(
          EmbeddedPostgres.acquire({ dataDirectory: Path.join(config.dataDirectory, "postgres") }),
          ({ url }) => DatabaseSettings.layerOf({ url })
        )
      )

/** The pool, checked and migrated. */
const database = (config: AppConfig) =>
  Migrated.layer([setOf(root, "mechanism"), setOf(root, "business")]).pipe(
    Layer.provide(Database.layerPatient),
    Layer.provideMerge(Database.layerChecked),
    Layer.provideMerge(databaseSettings(config))
  )

/** Session locks, wake-ups and shares: what several processes need to work on one database. And what each tells of itself. */
const platform = (config: AppConfig) =>
  Layer.mergeAll(Ownership.layer, PoolMetrics.layer("requests"), HealthParts.layer, Readiness.layer).pipe(
    Layer.provideMerge(Wakeups.layer),
    Layer.provideMerge(ControlConnection.layer),
    Layer.provideMerge(Fibers.layer),
    Layer.provideMerge(database(config))
  )

/** Apache Kafka where KAFKA_BROKERS names one, else a durable log in Postgres. */
const broker = (config: AppConfig) =>
  config.kafkaBrokers === undefined
    ? EmbeddedBroker.layer
    : KafkaBroker.layer.pipe(
        Layer.provide(
          Layer.succeed(KafkaBroker.KafkaSettings, {
            brokers: config.kafkaBrokers,
            prefix: config.kafkaPrefix,
            createTopics: config.kafkaCreateTopics,
            replication: config.kafkaReplication,
            sendTimeoutMillis: config.outboxSendTimeoutMillis,
            sessionTimeoutMillis: config.consumerSessionTimeoutMillis,
            clientId: "paid-once"
          })
        )
      )

/** Keeps lanes drained, and watches the connections that it does so on. */
const dispatcher = Layer.merge(
  Layer.provide(DispatcherHealth.layer, LaneWorkers.layer),
  Layer.provide(PoolMetrics.layer("dispatcher"), dispatcherDatabase)
)

/** Outbox and inbox: the mechanism, which knows no order. */
const messaging = (config: AppConfig) =>
  Layer.mergeAll(
    Outbox.layer,
    Tasks.layer,
    History.layer,
    Layer.provide(Consumers.steps, Consumers.database),
    Layer.provide(Dispatcher.layer, dispatcherDatabase),
    Availability.layer
  ).pipe(
    Layer.provideMerge(Layer.provideMerge(PublishSpans.layer, OutboxMetrics.layerLatency)),
    Layer.provideMerge(
      Layer.mergeAll(
        Layer.provide(OutboxQueue.layer, dispatcherDatabase),
        Publisher.layer,
        TopicChecks.layer,
        OutboxMetrics.layerZero(eventTypes)
      )
    ),
    Layer.provideMerge(Layer.mergeAll(LaneWakeup.layer, TaskWakeup.layer, Inbox.layer, broker(config)))
  )

/** The topics, checked before anything uses them, and the broker that has them. */
const topics = (roles: ReadonlySet<Role>) =>
  roles.has("http") || roles.has("dispatcher") || roles.has("consumers")
    ? Layer.mergeAll(TopicChecks.layerStart([ordersTopic]), TopicsHealth.layer, BrokerHealth.layer)
    : Layer.empty

/** Where a process that takes no requests is watched, if it is told a port: it answers from before its work begins until after it has ended. */
const watched = (config: AppConfig, roles: ReadonlySet<Role>) =>
  roles.has("http") || config.port === undefined ? Layer.empty : HttpServer.layerHealth

/** The sandbox gateway, on the pool that the service has or on one of its own. */
const sandbox = (config: AppConfig, port: number) =>
  GatewayServer.layer.pipe(
    Layer.provide(Layer.succeed(GatewayServerSettings, { port })),
    Layer.provide(Layer.succeed(BooksSettings, { keyRetentionMillis: config.gatewayKeyRetentionMillis }))
  )

/** The payment gateway of GATEWAY_URL, or a sandbox beside the service that speaks the same HTTP. */
const gatewaySettings = (config: AppConfig) => {
  const known = { timeoutMillis: config.gatewayTimeoutMillis, keyRetentionMillis: config.gatewayKeyRetentionMillis }
  return config.gatewayUrl !== undefined
    ? Layer.succeed(GatewaySettings, { url: config.gatewayUrl, ...known })
    : Layer.effect(
        GatewaySettings,
        GatewayServer.useSync(({ url }) => ({ url, ...known }))
      ).pipe(Layer.provideMerge(sandbox(config, 0)))
}

/** The use cases. */
const application = (config: AppConfig) =>
  Layer.mergeAll(
    PlaceOrder.layer,
    PayOrder.layer,
    RecoverPayment.layer,
    CancelOrder.layer,
    RefundOrder.layer,
    GatewayWebhook.layer,
    PaymentMetrics.layer,
    Reports.layer,
    Timeline.layer
  ).pipe(
    Layer.provideMerge(PaymentOutcomes.layer),
    Layer.provideMerge(Layer.mergeAll(Orders.layer, Payments.layer, Idempotency.layer, Gateway.layerHttp)),
    Layer.provideMerge(Layer.mergeAll(gatewaySettings(config), NodeHttpClient.layerUndici)),
    Layer.provideMerge(Layer.succeed(Subscribers, { names: consumerNames }))
  )

/** The sandbox beside the service reports to the service, once that answers; another company is told where by other means. */
const webhooks = Layer.effectDiscard(
  Effect.gen(function* () {
    const beside = yield* Effect.serviceOption(GatewayServer)
    const { secret } = yield* WebhookSettings
    const { url } = yield* HttpServer.BoundAddress
    if (beside._tag === "Some" && secret !== undefined) {
      yield* beside.value.reportTo({ url: `${url}/webhooks/gateway`, secret })
    }
  })
)

const http = Layer.provideMerge(webhooks, HttpServer.layer)

/** Reads the topics. */
const consumers = Layer.merge(InboxHealth.layer(consumerNames), Consumers.layer<Tasks>(subscribers))

/** The mail server of SMTP_URL, or files under the data directory. */
const mailTransport = (config: AppConfig) =>
  config.smtpUrl === undefined
    ? FileTransport.layer(Path.join(config.dataDirectory, "mail"))
    : SmtpTransport.layer(config.smtpUrl)

/** Tasks are claimed, renewed and ended on connections of their own: handlers that use up the pool don't cost them their leases. */
const workersDatabase = Database.layerReserved("workers", workerConnections)

const workers = (config: AppConfig) =>
  Layer.mergeAll(TaskWorkers.layer<TaskNeeds>(taskHandlers(config)), StrandedPayments.layer).pipe(
    Layer.provide(Layer.mergeAll(MailDeliveries.layer, mailTransport(config))),
    Layer.provide(
      Layer.mergeAll(TaskClaim.layer, TaskLeases.layer, TaskFinish.layer, PoolMetrics.layer("workers")).pipe(
        Layer.provide(workersDatabase)
      )
    )
  )

/** `layer` where this process has the role; nothing where it has not. */
const withRole = <A, E, R>(
  roles: ReadonlySet<Role>,
  role: Role,
  layer: Layer.Layer<A, E, R>
): Layer.Layer<never, E, R> => (roles.has(role) ? Layer.effectDiscard(Layer.build(layer)) : Layer.empty)

/** One round of upkeep, and nothing else. */
export const maintenance = (config: AppConfig, options: { readonly dryRun: boolean }) =>
  Effect.provide(Maintenance.runOnce(options), migrated(config).pipe(Layer.provideMerge(settings(config))))

/** The whole service, as far as `roles` go. */
export const service = (config: AppConfig, roles: ReadonlySet<Role>, output: { readonly json: boolean }) => {
  // One value, and so one instance, for all who use it.
  const useCases = application(config)
  const banner = Banner.layer({ config, roles, json: output.json })
  return (roles.has("http") ? Layer.provide(banner, useCases) : banner).pipe(
    Layer.provideMerge(roles.has("http") ? Layer.provide(http, useCases) : Readiness.layerWorking),
    Layer.provideMerge(withRole(roles, "consumers", consumers)),
    Layer.provideMerge(withRole(roles, "workers", Layer.provide(workers(config), useCases))),
    Layer.provideMerge(withRole(roles, "dispatcher", dispatcher)),
    Layer.provideMerge(withRole(roles, "maintenance", Maintenance.layer)),
    Layer.provideMerge(topics(roles)),
    Layer.provideMerge(watched(config, roles)),
    Layer.provideMerge(messaging(config)),
    Layer.provideMerge(platform(config)),
    Layer.provide(telemetry(config)),
    Layer.provide(settings(config)),
    Layer.provide(PidFile.layer(config.dataDirectory))
  )
}

/** The sandbox gateway alone. */
export const gateway = (config: AppConfig) =>
  sandbox(config, config.gatewayPort).pipe(
    Layer.tap((context) =>
      Effect.gen(function* () {
        const { reportTo, url } = Context.get(context, GatewayServer)
        const { gatewayWebhookSecret: secret, gatewayWebhookUrl: target } = config
        if (target !== undefined && secret !== undefined) yield* reportTo({ url: target, secret })
        yield* Console.log(`The sandbox gateway answers at ${url}`)
      })
    ),
    Layer.provide(database(config)),
    Layer.provide(settings(config))
  )

/** The migrated database alone. */
export const migrated = (config: AppConfig) => database(config).pipe(Layer.provide(settings(config)))

/** What the operator's commands need: the database, and a way to wake the dispatchers and consumers that run elsewhere. */
export const operator = (config: AppConfig) =>
  Layer.mergeAll(DeadLetters.layer, OutboxReport.layer, InboxDeadLetters.layer, InboxReport.layer).pipe(
    Layer.provide(LaneWakeup.layer),
    Layer.provide(Wakeups.layerDirect),
    Layer.provide(database(config)),
    Layer.provide(settings(config))
  )

/** See {@link operator}. */
export type OperatorServices = Layer.Success<ReturnType<typeof operator>>

/** Traces, where somebody collects them. */
const telemetry = (config: AppConfig) =>
  config.otlpEndpoint === undefined
    ? Layer.empty
    : Telemetry.layerOtlp({
        endpoint: config.otlpEndpoint,
        headers: config.otlpHeaders,
        serviceName: config.otelServiceName
      }).pipe(Layer.provide(NodeHttpClient.layerUndici))
