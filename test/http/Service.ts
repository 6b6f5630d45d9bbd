/** The whole service as one process runs it, on a database of its own and a free port, with the sandbox gateway beside it. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Agent, fetch } from "@effect/platform-node/Undici"
import { Effect, Layer, Redacted, SubscriptionRef } from "effect"
import { OpenApi } from "effect/http-api"
import { CancelOrder } from "../../src/application/CancelOrder.ts"
import { Gateway, GatewaySettings } from "../../src/application/Gateway.ts"
import { GatewayLedger } from "../../src/application/GatewayLedger.ts"
import { GatewayWebhook, WebhookSettings } from "../../src/application/GatewayWebhook.ts"
import { Idempotency } from "../../src/application/Idempotency.ts"
import { Journey } from "../../src/application/views/Journey.ts"
import { Orders } from "../../src/application/Orders.ts"
import { PaymentOutcomes } from "../../src/application/PaymentOutcomes.ts"
import { UnsettledMail } from "../../src/application/mail/UnsettledMail.ts"
import { PaceReport } from "../../src/application/views/PaceReport.ts"
import { PaymentReport } from "../../src/application/views/PaymentReport.ts"
import { SettlePayment } from "../../src/application/SettlePayment.ts"
import { Payments } from "../../src/application/Payments.ts"
import { PayOrder } from "../../src/application/PayOrder.ts"
import { PlaceOrder } from "../../src/application/PlaceOrder.ts"
import { Reconciliation, ReconciliationSettings } from "../../src/application/reconciliation/Reconciliation.ts"
import { ReconciliationRuns } from "../../src/application/reconciliation/ReconciliationRuns.ts"
import { TopicHistory } from "../../src/application/reconciliation/TopicHistory.ts"
import { RecoverPayment } from "../../src/application/RecoverPayment.ts"
import { RefundOrder } from "../../src/application/RefundOrder.ts"
import { StatusReport } from "../../src/application/views/StatusReport.ts"
import { Reports } from "../../src/application/Reports.ts"
import { Sums } from "../../src/application/views/Sums.ts"
import { Subscribers, Timeline } from "../../src/application/Timeline.ts"
import { Broker, BrokerUnavailable } from "../../src/brokers/Broker.ts"
import { Api } from "../../src/http/Api.ts"
import * as BrokerHealth from "../../src/http/BrokerHealth.ts"
import { HealthParts, Readiness } from "../../src/http/Health.ts"
import * as HttpServer from "../../src/http/HttpServer.ts"
import * as RequestContext from "../../src/http/RequestContext.ts"
import { ConsumerPace } from "../../src/operations/reports/ConsumerPace.ts"
import { LaneReport } from "../../src/operations/reports/LaneReport.ts"
import { CustomerEvents } from "../../src/application/views/CustomerEvents.ts"
import { GroupProgress } from "../../src/brokers/GroupProgress.ts"
import { faultPoints } from "../../src/FaultPoints.ts"
import { Doctor } from "../../src/operations/doctor/Doctor.ts"
import { ConsumerLag } from "../../src/operations/reports/ConsumerLag.ts"
import { ConsumerReport } from "../../src/operations/reports/ConsumerReport.ts"
import { EventSearch } from "../../src/operations/reports/EventSearch.ts"
import { ArmedFaults } from "../../src/operations/faults/ArmedFaults.ts"
import { AuditReport } from "../../src/operations/reports/AuditReport.ts"
import * as SandboxControl from "../../src/sandbox/SandboxControl.ts"
import { KnownNames } from "../../src/http/admin/KnownNames.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import { InboxReport } from "../../src/operations/reports/InboxReport.ts"
import { OutboxDeadLetters } from "../../src/operations/OutboxDeadLetters.ts"
import { OutboxReport } from "../../src/operations/reports/OutboxReport.ts"
import { PauseDecisions } from "../../src/operations/pauses/PauseDecisions.ts"
import { TaskReport } from "../../src/operations/reports/TaskReport.ts"
import { AppliedEvents } from "../../src/operations/AppliedEvents.ts"
import { History } from "../../src/operations/History.ts"
import { GatewayServer, GatewayServerSettings } from "../../src/sandbox/GatewayServer.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { TaskWakeup } from "../../src/tasks/TaskWakeup.ts"
import * as ApiDocument from "../support/ApiDocument.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

/** A broker for checks only: nothing is published in these tests. */
const unusedBroker = Layer.effect(
  Broker,
  Effect.map(SubscriptionRef.make(true), (available) => {
    const away = Effect.fail(new BrokerUnavailable({ operation: "test", cause: "none here" }))
    return Broker.of({ name: "test", available, ensureTopic: () => away, publish: () => away, consume: () => away })
  })
)

export const gateway = GatewayServer.layer.pipe(Layer.provide(Layer.succeed(GatewayServerSettings, { port: 0 })))

const gatewaySettings = Layer.effect(
  GatewaySettings,
  GatewayServer.useSync(({ url }) => ({ url, timeoutMillis: 30_000, keyRetentionMillis: 86_400_000 }))
)

/** The secret with which the gateway signs in tests. */
export const webhookSecret = Redacted.make("a-secret-of-two-companies")

/** How far a consumer of these tests has read: one record of two, in the first partition. */
const lag = Layer.provide(
  ConsumerLag.layer([{ name: "analytics", topic: "orders" }]),
  Layer.succeed(
    GroupProgress,
    GroupProgress.of({
      of: () => Effect.succeed([{ partition: 0, end: 2n, committed: 1n, lag: 1, owner: "a process" }])
    })
  )
)

/** Behind /admin. */
const operator = Layer.mergeAll(
  OutboxDeadLetters.layer,
  OutboxReport.layer,
  InboxDeadLetters.layer,
  InboxReport.layer,
  PauseDecisions.layer,
  AuditReport.layer,
  SandboxControl.layer,
  ArmedFaults.layer(faultPoints),
  Layer.provide(CustomerEvents.layer, EventSearch.layer),
  TaskReport.layer,
  PaymentReport.layer,
  Layer.provideMerge(Reconciliation.layer, ReconciliationRuns.layer).pipe(
    Layer.provide(Layer.merge(TopicHistory.layerEmbedded, Layer.succeed(ReconciliationSettings, { graceMillis: 1 })))
  ),
  SettlePayment.layer,
  Sums.layer,
  UnsettledMail.layer,
  LaneReport.layer(["orders"]),
  PaceReport.layer,
  Layer.succeed(Doctor, {
    run: Effect.succeed({
      checks: [
        { group: "postgres", name: "settings", outcome: "ok" as const, told: "as they should be", findings: [] }
      ],
      findings: 0,
      notChecked: 0
    })
  }),
  KnownNames.layer({ topic: ["orders"], consumer: ["analytics"], "task type": ["email", "note"] })
).pipe((services) =>
  Layer.mergeAll(
    Layer.provide(ConsumerReport.layer, lag),
    StatusReport.layer,
    Layer.provideMerge(Journey.layer, Layer.provide(ConsumerPace.layer, lag))
  ).pipe(Layer.provideMerge(services))
)

const applicationWith = (gatewayClient: typeof Gateway.layerHttp) =>
  Layer.mergeAll(
    PlaceOrder.layer,
    PayOrder.layer,
    RecoverPayment.layer,
    CancelOrder.layer,
    RefundOrder.layer,
    GatewayWebhook.layer,
    Reports.layer,
    Timeline.layer
  ).pipe(
    Layer.provide(Layer.succeed(WebhookSettings, { secrets: [webhookSecret] })),
    Layer.provideMerge(operator),
    Layer.provideMerge(PaymentOutcomes.layer),
    Layer.provideMerge(
      Layer.mergeAll(Orders.layer, Payments.layer, Idempotency.layer, gatewayClient, GatewayLedger.layerHttp)
    ),
    Layer.provideMerge(gatewaySettings),
    Layer.provide(NodeHttpClient.layerUndici),
    Layer.provideMerge(
      Layer.mergeAll(
        History.layer,
        AppliedEvents.layer,
        Tasks.layer.pipe(Layer.provideMerge(TaskWakeup.layer)),
        gateway,
        Layer.succeed(Subscribers, { names: ["analytics"] })
      )
    )
  )

/** Everything but the HTTP server, on the given database. */
export const underHttpOn = <A, E, R>(
  database: Layer.Layer<A | TestDatabase, E, R>,
  gatewayClient: typeof Gateway.layerHttp = Gateway.layerHttp
) =>
  Layer.mergeAll(applicationWith(gatewayClient), BrokerHealth.layer, Readiness.layer).pipe(
    Layer.provideMerge(Layer.mergeAll(unusedBroker, HealthParts.layer)),
    Layer.provideMerge(RequestContext.layer),
    Layer.provideMerge(TestProcess.outbox),
    Layer.provideMerge(database)
  )

export const anyPort = { host: "127.0.0.1", port: 0, graceMillis: 5_000 }

export const service = HttpServer.layer.pipe(
  Layer.provide(Layer.succeed(HttpServer.HttpSettings, anyPort)),
  Layer.provideMerge(underHttpOn(TestDatabase.layer))
)

/** The body of a valid order. */
export const newOrder = {
  customerId: "customer-1",
  currency: "EUR",
  lines: [
    { sku: "book", quantity: 2, unitAmountMinor: 1_250 },
    { sku: "pen", quantity: 1, unitAmountMinor: 99 }
  ]
}

/** An answer with its whole body. */
export interface Answer {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  // oxlint-disable-next-line typescript/no-explicit-any -- the tests look into answers whose shape they assert on
  readonly json: any
}

/** Some tests ask the sandbox, which the document does not describe. */
const sandboxPaths = /^\/(charges|refunds|ledger|behaviour)/

const { problemsOf } = ApiDocument.make(OpenApi.fromApi(Api) as unknown as ApiDocument.OpenApiDocument)

interface Sent {
  readonly method?: string
  readonly body?: unknown
  readonly headers?: Record<string, string>
}

const methodOf = ({ body, method }: Sent) => method ?? (body === undefined ? "GET" : "POST")

/** A stop waits for a kept connection that is silent (Draining.ts), and each test stops its service: this client keeps none for longer. */
const idleMillis = 10
const agent = new Agent({ keepAliveTimeout: idleMillis, keepAliveMaxTimeout: idleMillis })

/** One request to `url`, to a server that the OpenAPI document does not describe. A body that is no text or bytes is sent as JSON. */
export const sendElsewhere = (url: string, init: Sent = {}): Effect.Effect<Answer> =>
  Effect.promise(async () => {
    const { body, headers } = init
    const response = await fetch(url, {
      dispatcher: agent,
      method: methodOf(init),
      headers: { ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
      ...(body === undefined
        ? {}
        : { body: typeof body === "string" || body instanceof Uint8Array ? (body as string) : JSON.stringify(body) })
    })
    const text = await response.text()
    const isJson = /json/.test(response.headers.get("content-type") ?? "")
    return { status: response.status, headers: response.headers, text, json: isJson ? JSON.parse(text) : undefined }
  })

/** {@link sendElsewhere} to the service. An answer that does not fit the service's own OpenAPI document is a defect. */
export const send = (url: string, init: Sent = {}): Effect.Effect<Answer> =>
  Effect.tap(sendElsewhere(url, init), ({ headers, status, text }) => {
    const { pathname, search } = new URL(url)
    const header = (name: string) => headers.get(name) ?? undefined
    const problems = sandboxPaths.test(pathname)
      ? []
      : problemsOf({ method: methodOf(init), target: pathname + search, status, header, text })
    return problems.length === 0 ? Effect.void : Effect.die(new Error(problems.join("\n")))
  })
