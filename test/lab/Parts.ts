/**
 * The parts of the service that the lab runs: all of them the real layers. A planted mistake replaces one or two.
 */
import type { PgClient } from "@effect/sql-pg"
import { Effect, Layer } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { type Gateway, GatewaySettings } from "../../src/application/Gateway.ts"
import { CancelOrder } from "../../src/application/CancelOrder.ts"
import { GatewayWebhook, WebhookSettings } from "../../src/application/GatewayWebhook.ts"
import { Idempotency } from "../../src/application/Idempotency.ts"
import { Orders } from "../../src/application/Orders.ts"
import { PaymentOutcomes } from "../../src/application/PaymentOutcomes.ts"
import { Payments } from "../../src/application/Payments.ts"
import { PayOrder } from "../../src/application/PayOrder.ts"
import { PlaceOrder } from "../../src/application/PlaceOrder.ts"
import { RecoverPayment } from "../../src/application/RecoverPayment.ts"
import { RefundOrder } from "../../src/application/RefundOrder.ts"
import { RecoverySettings } from "../../src/application/tasks/PaymentRecover.ts"
import type { Broker } from "../../src/brokers/Broker.ts"
import { TopicSettings } from "../../src/brokers/Broker.ts"
import { HoldRetries } from "../../src/inbox/holds/HoldRetries.ts"
import { ApplySlice } from "../../src/inbox/ApplySlice.ts"
import { Cursors } from "../../src/inbox/Cursors.ts"
import { HandleSettings } from "../../src/inbox/Handle.ts"
import { RetryRoundSettings } from "../../src/inbox/holds/RetryRound.ts"
import { Inbox } from "../../src/inbox/Inbox.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import type { Holds as InboxHolds } from "../../src/inbox/holds/Holds.ts"
import * as ParkedHolds from "../../src/inbox/holds/ParkedHolds.ts"
import * as InboxParking from "../../src/inbox/holds/Parking.ts"
import * as Maintenance from "../../src/operations/Maintenance.ts"
import { RetentionSettings } from "../../src/platform/Retention.ts"
import { OutboxDeadLetters } from "../../src/operations/OutboxDeadLetters.ts"
import { Dispatcher } from "../../src/outbox/Dispatcher.ts"
import { PartitionPauses, PauseSettings } from "../../src/guards/PartitionPauses.ts"
import type { Holds } from "../../src/outbox/holds/Holds.ts"
import * as Parking from "../../src/outbox/holds/Parking.ts"
import { Outbox } from "../../src/outbox/Outbox.ts"
import { Queue, QueueSettings } from "../../src/outbox/Queue.ts"
import * as SmallTurns from "../../src/postgres/fast/SmallTurns.ts"
import { PartitionCounts } from "../../src/operations/PartitionCounts.ts"
import { OutOfOrderVersions } from "../../src/guards/OutOfOrderVersions.ts"
import * as SizeLimits from "../../src/guards/SizeLimits.ts"
import * as CheckedTopics from "../../src/operations/CheckedTopics.ts"
import { PollRequests } from "../../src/outbox/PollRequests.ts"
import { LowWaterMarks } from "../../src/postgres/fast/LowWaterMarks.ts"
import { Publisher } from "../../src/outbox/Publisher.ts"
import { TopicChecks } from "../../src/operations/TopicChecks.ts"
import { LaneWakeup } from "../../src/outbox/LaneWakeup.ts"
import { TaskClaim } from "../../src/tasks/TaskClaim.ts"
import { TaskFinish } from "../../src/tasks/TaskFinish.ts"
import { TaskLeases } from "../../src/tasks/TaskLeases.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { TaskSettings } from "../../src/tasks/TaskSettings.ts"
import { TaskWakeup } from "../../src/tasks/TaskWakeup.ts"
import { Wakeups } from "../../src/platform/Wakeups.ts"
import * as OneStatementClaim from "../../src/postgres/fast/OneStatementClaim.ts"
import { webhookSecret } from "./MoneyRequests.ts"
import type { Ids } from "../../src/platform/Ids.ts"
import { keyRetentionMillis } from "./ModelGateway.ts"

/** The surroundings of every actor (Actor.ts), and the models of broker and gateway. */
export type Around =
  | Ids
  | PgClient.PgClient
  | SqlClient.SqlClient
  | Broker
  | Gateway
  | LaneWakeup
  | TaskWakeup
  | Wakeups
  | GatewaySettings

/** A part, built from the surroundings and the parts before it. */
type Part<A, R = never> = Layer.Layer<A, never, Around | R>

export interface Parts {
  readonly outbox: Part<Outbox>
  readonly orders: Part<Orders, Outbox>
  readonly payOrder: Part<PayOrder, Orders | Payments | PaymentOutcomes | Idempotency | Tasks>
  readonly cancelOrder: Part<CancelOrder, Orders | Payments | Idempotency>
  readonly recoverPayment: Part<RecoverPayment, Payments | PaymentOutcomes>
  readonly taskClaim: Part<TaskClaim>
  readonly taskFinish: Part<TaskFinish>
  readonly queue: Part<Queue>
  readonly publisher: Part<Publisher>
  readonly dispatcher: Part<Dispatcher, Queue | Publisher | Holds>
  readonly inbox: Part<Inbox>
  readonly deadLetters: Part<OutboxDeadLetters>
  readonly cursors: Part<Cursors>
  readonly inboxHolds: Part<ParkedHolds.ParkedHolds>
  readonly applySlice: Part<ApplySlice, Inbox | Cursors | InboxHolds>
  /** The inbox's fast path, in cases that use it. */
  readonly fastPath: Part<never>
  readonly holdRetries: Part<HoldRetries, Inbox | Cursors | ParkedHolds.ParkedHolds>
  readonly inboxDeadLetters: Part<InboxDeadLetters>
  /** One round of upkeep. */
  readonly upkeep: Effect.Effect<unknown, SqlError.SqlError, PgClient.PgClient | SqlClient.SqlClient>
  /**
   * The effect of a failed slice on its consumer: the partition's reader waits and hands the slice out again, or the client stops with all
   * its partitions.
   */
  readonly clientLoop: "waits" | "stops"
  /** How many events a fetch returns at most. */
  readonly batchSize: number
  /** Whether a lane belongs to one dispatcher. If not, each dispatcher may take each lane at any time. */
  readonly lanesHaveOwners: boolean
  /** How many workers of one dispatcher may work on the same lane. */
  readonly workersPerLane: 1 | 2
}

export const realParts: Parts = {
  outbox: Outbox.layer,
  orders: Orders.layer,
  payOrder: PayOrder.layer,
  cancelOrder: CancelOrder.layer,
  recoverPayment: RecoverPayment.layer,
  taskClaim: TaskClaim.layer,
  taskFinish: TaskFinish.layer,
  queue: Layer.provide(SmallTurns.layer, Queue.layer),
  // The topic never changes here, so its count of partitions needs no statement: it would be a gate where nothing can fail.
  publisher: CheckedTopics.layer.pipe(
    Layer.provide(Publisher.layer),
    Layer.provide(TopicChecks.layerNoDeps),
    Layer.provide(
      Layer.succeed(PartitionCounts, { noted: () => Effect.undefined, note: (_, found) => Effect.succeed(found) })
    )
  ),
  dispatcher: Dispatcher.layer,
  deadLetters: OutboxDeadLetters.layer,
  inbox: Inbox.layer,
  cursors: Cursors.layer,
  inboxHolds: ParkedHolds.ParkedHolds.layer,
  applySlice: ApplySlice.layerNoDeps,
  fastPath: OneStatementClaim.layer,
  holdRetries: HoldRetries.layerNoDeps,
  inboxDeadLetters: InboxDeadLetters.layer,
  upkeep: Maintenance.runOnce(),
  clientLoop: "waits",
  // Two, so that a batch can hold more than one event and a handful of events still makes several batches.
  batchSize: 2,
  lanesHaveOwners: true,
  workersPerLane: 1
}

/** The partitions of the orders topic: with two, some orders share one and some don't. */
export const partitionCount = 2

/** Wake-ups do nothing: the scheduler sees committed rows. */
const wakeup = Layer.mergeAll(
  Layer.succeed(LaneWakeup, { wake: () => Effect.void, onWake: () => Effect.void }),
  Layer.succeed(TaskWakeup, { wake: () => Effect.void, onWake: () => Effect.void }),
  Layer.succeed(Wakeups, { send: () => Effect.void, on: () => Effect.void })
)

/** The delays before the runs of a recovery, all within a minute. After the third run the payment is `manual`. */
export const recoveryDelaysMillis = [5_000, 15_000, 40_000] as const

/** Leases expire, and tasks become due again, within a minute. */
export const taskSettings = {
  leaseMillis: 30_000,
  heartbeatMillis: 10_000,
  retryDelaysMillis: [1_000],
  pollMillis: 1_000,
  graceMillis: 10_000
}

/** Retention of one day, the smallest unit. Tasks stay, since the oracle checks them at the end of a case. */
export const retention = { outboxDays: 1, inboxDays: 1, taskDays: 0 } as const

/** Attempts of an event whose handler fails: after the third it is a dead letter. */
export const maxTries = 3

/** Settings of each actor, beside its surroundings. */
export const settings = Layer.mergeAll(
  wakeup,
  Layer.succeed(GatewaySettings, {
    url: "http://gateway.invalid",
    timeoutMillis: 5_000,
    keyRetentionMillis
  }),
  Layer.succeed(WebhookSettings, { secrets: [webhookSecret] }),
  Layer.succeed(RecoverySettings, { delaysMillis: recoveryDelaysMillis }),
  Layer.succeed(TaskSettings, taskSettings),
  Layer.succeed(RetentionSettings, retention),
  Layer.succeed(TopicSettings, { partitions: partitionCount }),
  // No time limit on handlers: it would be a second thing that happens at the same time.
  Layer.succeed(HandleSettings, { timeoutMillis: Infinity }),
  // One hold at a time, since an actor stops at one gate.
  Layer.succeed(RetryRoundSettings, { sideBySide: 1 }),
  // Seconds, so that the lab decides when an attempt is due, and not the number of reads of the clock.
  Layer.succeed(ParkedHolds.HoldSettings, { retryBaseMillis: 1_000, maxAttempts: maxTries }),
  Layer.succeed(Parking.HoldSettings, { retryBaseMillis: 1, maxAttempts: 3, skipTopics: [] }),
  // Milliseconds of the lab's time, which passes with the steps, so that a pause ends within its case.
  Layer.succeed(PauseSettings, { backoffBaseMillis: 4, backoffCapMillis: 32 })
)

/** The layers below the use cases. */
const baseOf = (parts: Parts) =>
  PaymentOutcomes.layer.pipe(
    Layer.provideMerge(Layer.mergeAll(parts.orders, Payments.layer, Idempotency.layer, Tasks.layer)),
    Layer.provideMerge(parts.outbox)
  )

/** Clients also send the operator's requests and receive the gateway's reports: a separate process would make no difference. */
export const clientOf = (parts: Parts) =>
  Layer.mergeAll(
    PlaceOrder.layer,
    parts.payOrder,
    parts.cancelOrder,
    RefundOrder.layer,
    GatewayWebhook.layer,
    parts.deadLetters,
    parts.inboxDeadLetters
  ).pipe(Layer.provideMerge(baseOf(parts)))

/** Workers run the recovery of payments, and the lab's own tasks. */
export const workerOf = (parts: Parts) =>
  Layer.mergeAll(
    parts.recoverPayment.pipe(Layer.provide(baseOf(parts))),
    parts.taskClaim,
    parts.taskFinish,
    TaskLeases.layer
  )

/**
 * Settings that the case's seed decides, beside ids and jitter. One case in four keeps no archive. In one of five a batch has room for one
 * event. In two of three, slices of a consumer's partitions are coalesced. In three of four the inbox has its fast path.
 */
export const settingsOf = (
  seed: number
): {
  readonly archive: boolean
  readonly batchBytes: number
  readonly coalesces: boolean
  readonly hasFastPath: boolean
} => ({
  archive: seed % 4 !== 3,
  coalesces: seed % 3 !== 2 && seed > 0,
  hasFastPath: seed % 4 !== 1,
  batchBytes: seed % 5 === 4 ? 1_000 : 900_000
})

/** The guards around the steps, which a mistake may have changed. */
const guards = SizeLimits.layer.pipe(
  Layer.provideMerge(PartitionPauses.layer),
  Layer.provideMerge(OutOfOrderVersions.layer),
  Layer.provideMerge(LowWaterMarks.layerQueue),
  Layer.provide(PollRequests.layer)
)

export const dispatcherOf = (parts: Parts, settings: ReturnType<typeof settingsOf>) =>
  parts.dispatcher.pipe(
    Layer.provideMerge(guards),
    Layer.provideMerge(Layer.mergeAll(parts.queue, parts.publisher, Parking.layer)),
    Layer.provide(Layer.succeed(QueueSettings, { batchSize: parts.batchSize, ...settings }))
  )

export const consumerOf = (parts: Parts, { hasFastPath }: ReturnType<typeof settingsOf>) =>
  parts.applySlice.pipe(
    Layer.provide(InboxParking.layerNoDeps),
    Layer.provideMerge(parts.holdRetries),
    Layer.provide(Layer.mergeAll(parts.inbox, parts.cursors, parts.inboxHolds)),
    Layer.provide(hasFastPath ? parts.fastPath : Layer.empty)
  )
