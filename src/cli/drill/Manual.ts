/** The drill `manual`: the gateway captures a payment and gives no clear answer. Nobody guesses: a person looks, and settles it. */
import { Effect, Fiber, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { SettlePayment } from "../../application/SettlePayment.ts"
import { paymentRecover } from "../../application/tasks/PaymentRecover.ts"
import { PaymentId } from "../../domain/Ids.ts"
import * as Rows from "../../platform/Rows.ts"
import { TaskId } from "../../tasks/TaskType.ts"
import { Tasks } from "../../tasks/Tasks.ts"
import { gatewayBooks, gatewayReports } from "./Breakages.ts"
import type { Steps } from "./Ground.ts"
import { DrillFailed } from "./Teller.ts"

const found = Rows.first(Schema.Struct({ paymentId: PaymentId, status: Schema.String, taskId: Schema.NullOr(TaskId) }))
const counted = Rows.one(Schema.Struct({ count: Schema.Int }))

export const manual: Steps<SettlePayment | Tasks> = Effect.fnUntraced(function* ({
  applied,
  hurt,
  operator,
  pageOf,
  pay,
  place,
  run,
  teller: { tell, until },
  url
}) {
  const order = yield* place()
  yield* tell("does", `An order is placed: ${order}.`, pageOf(order))
  const payment = run(
    Effect.flatMap(SqlClient.SqlClient, (sql) =>
      found(sql`
        SELECT p.id AS "paymentId", p.status, t.task_id AS "taskId"
        FROM payments AS p LEFT JOIN outbox_tasks AS t ON t.task_type = ${paymentRecover.name} AND t.idempotency_key = p.id::text
        WHERE p.order_id = ${order}::uuid`)
    )
  )
  const isCharged = run(
    Effect.flatMap(SqlClient.SqlClient, (sql) =>
      counted(sql`
        SELECT count(*)::int4 AS count FROM sandbox_gateway.charges AS c JOIN payments AS p ON p.id::text = c.idempotency_key
        WHERE p.order_id = ${order}::uuid`)
    )
  )

  const mendReports = yield* hurt(gatewayReports)
  const paying = yield* Effect.forkScoped(pay(order, "pm_timeout_then_captured"))
  yield* until(
    "the gateway to capture it",
    Effect.map(isCharged, ({ count }) => count === 1)
  )
  const mendBooks = yield* hurt(gatewayBooks)
  yield* tell(
    "breaks",
    "The gateway has captured the payment, and does not answer. Its report is lost, and to each further question it answers with an error."
  )
  yield* Fiber.join(paying)
  const { paymentId } = (yield* payment)!
  const page = `${url}/console/payments/${paymentId}`
  yield* tell("sees", "The customer is told 202: the outcome is not known, and nobody guesses it.", page)
  yield* tell("does", "The service would ask for nine hours. We make each of its attempts due at once (tasks retry).")
  yield* until(
    "the attempts to be used up",
    Effect.flatMap(payment, (now) =>
      now?.status === "manual"
        ? Effect.succeed(true)
        : now === undefined || now.taskId === null
          ? Effect.succeed(false)
          : Effect.as(Effect.ignore(Tasks.use(({ retry }) => retry(now.taskId!, operator))), false)
    )
  )
  yield* tell(
    "sees",
    "The payment is manual, and waits for a person. It is not charged again, and its order waits.",
    page
  )

  yield* mendBooks
  yield* mendReports
  yield* tell("mends", "The gateway answers again.")
  const settle = yield* SettlePayment
  const failing = Effect.mapError(({ message }: Error) => new DrillFailed({ reason: message }))
  const { charge } = yield* settle.check(paymentId).pipe(failing)
  yield* tell("sees", `paid-once payments check ${paymentId}: ${charge.words}.`, page)
  const settled = yield* settle.settle(paymentId, {}, operator).pipe(failing)
  yield* tell(
    "mends",
    `paid-once payments settle ${paymentId} --reason "…": it is ${settled.payment.status}, and its order ${settled.orderStatus}.`
  )
  yield* applied(order, 2)
  const { count } = yield* isCharged
  return [
    ["the gateway had captured it when the person looked", charge.says === "captured"],
    [`${count} charge at the gateway for the order`, count === 1]
  ]
})
