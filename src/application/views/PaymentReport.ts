/** The operator's view of payments: those that wait or are under way, and the whole story of one. */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type Statement } from "effect/sql"
import { PaymentId } from "../../domain/Ids.ts"
import { Payment, PaymentMethod, PaymentStatus, refundKeyOf } from "../../domain/Payment.ts"
import { laneOf } from "../../outbox/Lane.ts"
import { skewInterval } from "../../platform/Ids.ts"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Pages from "../../platform/Pages.ts"
import * as Rows from "../../platform/Rows.ts"
import { OrderSummary, Orders } from "../Orders.ts"
import { PaymentNotFound } from "../Payments.ts"
import { auditSubject } from "../SettlePayment.ts"
import { paymentRecover } from "../tasks/PaymentRecover.ts"

/** A payment as lists show it. Times are ISO 8601 in UTC. */
export const ListedPayment = Schema.Struct({
  ...Payment.fields,
  paymentMethod: PaymentMethod,
  /** The gateway's reason, where it has declined it, whatever it said later. */
  declineReason: Schema.NullOr(Schema.String),
  createdAt: Schema.String,
  /** Since when it has its status. */
  updatedAt: Schema.String
}).annotate({ identifier: "ListedPayment" })
export type ListedPayment = typeof ListedPayment.Type

/** A page, newest first. `nextCursor` is null on the last page. */
export const PaymentPage = Schema.Struct({
  items: Schema.Array(ListedPayment),
  nextCursor: Schema.NullOr(PaymentId)
}).annotate({ identifier: "PaymentPage" })
export type PaymentPage = typeof PaymentPage.Type

/** Which payments. Without `statuses` those that are {@link underWay}. */
export const PaymentFilter = Schema.Struct({
  statuses: Schema.optionalKey(Schema.Array(PaymentStatus)),
  /** Only payments that began in these last seconds. */
  sinceSeconds: Schema.optionalKey(Schema.Finite),
  /** Only payments that are older than this one. */
  cursor: Schema.optionalKey(PaymentId)
})

/** Payments without an end. Each status is counted up to {@link countLimit}. */
export const PaymentCounts = Schema.Struct({
  manual: Schema.Int,
  charging: Schema.Int,
  refunding: Schema.Int,
  /** Since the first of the manual ones is manual; null where there is none. */
  manualSeconds: Schema.NullOr(Schema.Number),
  /** Whether there are more of a status than were counted. */
  areMore: Schema.Boolean
})
export type PaymentCounts = typeof PaymentCounts.Type

/** A person acts the same on more. */
export const countLimit = 1_000

/** The statuses of payments that wait for a person, or for the gateway. */
export const underWay: ReadonlyArray<PaymentStatus> = ["manual", "charging", "refunding"]

/** What happened to a payment, and when. */
export const Step = Schema.Struct({
  at: Schema.String,
  of: Schema.Literals(["payment", "order", "recovery", "operator"]),
  what: Schema.String
})
export type Step = typeof Step.Type

/** All that is stored of a payment: its order, and its story in the order of time. */
export const PaymentStory = Schema.Struct({
  payment: ListedPayment,
  order: OrderSummary,
  story: Schema.Array(Step)
}).annotate({ identifier: "PaymentStory" })
export type PaymentStory = typeof PaymentStory.Type

/** Steps of a story: the last ones. A payment has some ten, and an order that is declined again and again has more. */
const maxSteps = 200

const columns = `
  p.id, p.order_id AS "orderId", p.status, p.amount_minor::float8 AS "amountMinor", p.currency,
  p.captured_minor::float8 AS "capturedMinor", p.refunded_minor::float8 AS "refundedMinor", p.payment_method AS "paymentMethod",
  p.decline_reason AS "declineReason", ${isoTime("p.created_at")} AS "createdAt", ${isoTime("p.updated_at")} AS "updatedAt"`

const oneCount = Rows.one(
  Schema.Struct({
    manual: Schema.Int,
    charging: Schema.Int,
    refunding: Schema.Int,
    manualSeconds: Schema.NullOr(Schema.Number)
  })
)
const allListed = Rows.all(ListedPayment)
const firstListed = Rows.first(ListedPayment)
const allSteps = Rows.all(Step)

/**
 * Unfinished payments are few among all, and each of these lists is an index. A payment that is given back after a decline is in none of its own:
 * the task that gives it back leads to it.
 */
const underWayIds = `p.id IN (
  SELECT id FROM payments WHERE status IN ('charging', 'refunding', 'manual') AND decline_reason IS NULL
  UNION ALL SELECT id FROM payments WHERE status = 'manual'
  UNION ALL SELECT (payload ->> 'paymentId')::uuid FROM outbox_tasks WHERE task_type = '${paymentRecover.name}' AND state IN ('pending', 'failed')
  UNION ALL SELECT (payload ->> 'paymentId')::uuid FROM outbox_tasks WHERE task_type = '${paymentRecover.name}' AND state = 'processing')`

export class PaymentReport extends Context.Service<
  PaymentReport,
  {
    /** At most `limit` payments, newest first. */
    readonly list: (filter: typeof PaymentFilter.Type, limit: number) => Effect.Effect<PaymentPage>
    /** How many are under way, and how many wait for a person. */
    readonly counts: Effect.Effect<PaymentCounts>
    readonly show: (id: PaymentId) => Effect.Effect<PaymentStory, PaymentNotFound>
  }
>()("paid-once/application/PaymentReport") {
  static readonly layer: Layer.Layer<PaymentReport, never, Orders | SqlClient.SqlClient> = Layer.effect(
    PaymentReport,
    Effect.gen(function* () {
      const orders = yield* Orders
      const sql = yield* SqlClient.SqlClient

      const list = Effect.fn("PaymentReport.list")(function* (filter: typeof PaymentFilter.Type, limit: number) {
        const { cursor, sinceSeconds, statuses = underWay } = filter
        const conditions: ReadonlyArray<Statement.Fragment> = [
          sql`p.status = ANY (${[...statuses]}::text[])`,
          ...(statuses.every((status) => underWay.includes(status)) ? [sql.literal(underWayIds)] : []),
          ...(cursor === undefined ? [] : [sql`p.id < ${cursor}::uuid`]),
          // An id tells about when a payment began: without the second condition all older ones would be read.
          ...(sinceSeconds === undefined
            ? []
            : [
                sql`p.created_at >= clock_now() - ${sinceSeconds}::float8 * interval '1 second'`,
                sql`p.id >= (SELECT uuid_v7_floor_at(clock_now() - ${sinceSeconds}::float8 * interval '1 second' - ${skewInterval}::interval))`
              ])
        ]
        const found = yield* allListed(sql`
          SELECT ${sql.literal(columns)} FROM payments AS p WHERE ${sql.and(conditions)}
          ORDER BY p.id DESC LIMIT ${limit + 1}`)
        return Pages.page(found, limit)
      }, Effect.orDie)

      const inStatus = (status: PaymentStatus) =>
        sql`(SELECT p.updated_at FROM payments AS p WHERE p.status = ${status} AND ${sql.literal(underWayIds)} LIMIT ${countLimit + 1})`
      const counts = Effect.map(
        Effect.orDie(
          oneCount(sql`
            SELECT (SELECT count(*) FROM ${inStatus("manual")} AS m)::int4 AS manual,
                   (SELECT count(*) FROM ${inStatus("charging")} AS c)::int4 AS charging,
                   (SELECT count(*) FROM ${inStatus("refunding")} AS r)::int4 AS refunding,
                   (SELECT extract(epoch FROM clock_now() - min(updated_at))::float8 FROM ${inStatus("manual")} AS m) AS "manualSeconds"`)
        ),
        ({ charging, manual, manualSeconds, refunding }): PaymentCounts => ({
          manual: Math.min(manual, countLimit),
          charging: Math.min(charging, countLimit),
          refunding: Math.min(refunding, countLimit),
          manualSeconds,
          areMore: Math.max(manual, charging, refunding) > countLimit
        })
      )

      const story = (id: PaymentId, orderId: string) =>
        allSteps(sql`
          WITH payment AS (SELECT * FROM payments WHERE id = ${id}::uuid),
          recovery AS (
            SELECT *, CASE WHEN idempotency_key = ${id} THEN 'charge' ELSE 'refund' END AS phase FROM outbox_tasks
            WHERE task_type = ${paymentRecover.name} AND idempotency_key IN (${id}, ${refundKeyOf(id)})),
          step (at, rank, "of", what) AS (
            SELECT created_at, 1, 'payment', 'intent to charge, with ' || payment_method FROM payment
            UNION ALL SELECT unknown_since, 3, 'payment', 'the gateway gave no answer' FROM payment
            UNION ALL SELECT captured_at, 3, 'payment', 'captured' FROM payment
            UNION ALL SELECT refund_begun_at, 3, 'payment', 'intent to refund, or a refund at the gateway' FROM payment
            UNION ALL SELECT refunded_at, 4, 'payment', 'refunded' FROM payment
            UNION ALL SELECT updated_at, 5, 'payment', status || coalesce(', after it was declined: ' || decline_reason, '') FROM payment
                      WHERE status IN ('declined', 'manual')
            UNION ALL SELECT occurred_at, 2, 'order', event_type || ', version ' || aggregate_version || ', ' || status FROM outbox_status
                      WHERE aggregate_id = ${orderId} AND (lane = ${laneOf(orderId)}::int2 OR lane IS NULL)
            UNION ALL SELECT (entry ->> 'at')::timestamptz, 3, 'recovery',
                             phase || ', attempt ' || (entry ->> 'attempt') || ': ' || (entry ->> 'error')
                      FROM recovery, jsonb_array_elements(history) AS entry
            UNION ALL SELECT coalesce(finished_at, execute_at), 6, 'recovery',
                             phase || ', task ' || task_id || ', ' || attempts || ' attempts: ' || state
                             || CASE WHEN finished_at IS NULL THEN ', due now' ELSE '' END
                      FROM recovery
            UNION ALL SELECT at, 4, 'operator', action || ' by ' || actor || ': ' || reason FROM operator_audit
                      WHERE (subject = ${auditSubject} AND subject_id = ${id})
                         OR (subject = 'task' AND subject_id IN (SELECT task_id::text FROM recovery)))
          SELECT ${sql.literal(isoTime("at"))} AS at, "of", what
          FROM (SELECT * FROM step WHERE at IS NOT NULL ORDER BY at DESC, rank DESC LIMIT ${maxSteps}) AS last
          ORDER BY last.at, rank`)

      const show = Effect.fn("PaymentReport.show")(function* (id: PaymentId) {
        const payment = yield* Effect.orDie(
          firstListed(sql`SELECT ${sql.literal(columns)} FROM payments AS p WHERE p.id = ${id}::uuid`)
        )
        if (payment === undefined) return yield* new PaymentNotFound({ paymentId: id })
        const order = yield* Effect.orDie(orders.summary(payment.orderId))
        return { payment, order, story: yield* Effect.orDie(story(id, payment.orderId)) }
      })

      return PaymentReport.of({ list, counts, show })
    })
  )
}
