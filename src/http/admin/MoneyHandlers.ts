/** The handlers of the groups in `MoneyApi.ts`. */
import { Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { CancelOrder } from "../../application/CancelOrder.ts"
import { UnsettledMail } from "../../application/mail/UnsettledMail.ts"
import { PaymentReport } from "../../application/views/PaymentReport.ts"
import { RefundOrder } from "../../application/RefundOrder.ts"
import { SettlePayment } from "../../application/SettlePayment.ts"
import { Api } from "../Api.ts"
import * as Body from "../Body.ts"
import { answering, decide, decideAll } from "./AdminAnswers.ts"
import { ReasonBody } from "./AdminParts.ts"
import { MailRetryBody, ResolveBody, SettleBody } from "./MoneyApi.ts"

const orders = HttpApiBuilder.group(
  Api,
  "adminOrders",
  Effect.fn(function* (handlers) {
    const [cancelling, refunding] = [yield* CancelOrder, yield* RefundOrder]
    return handlers
      .handleRaw("refund", ({ params }) => decide(ReasonBody, (operator) => refunding.decide(params.id, operator)))
      .handleRaw("cancel", ({ params }) => decide(ReasonBody, (operator) => cancelling.decide(params.id, operator)))
  })
)

const payments = HttpApiBuilder.group(
  Api,
  "adminPayments",
  Effect.fn(function* (handlers) {
    const report = yield* PaymentReport
    const { check, settle } = yield* SettlePayment
    return handlers
      .handle("list", ({ query: { status, ...query } }) =>
        report.list({ ...query, ...(status === undefined ? {} : { statuses: [status] }) }, query.limit)
      )
      .handle("show", ({ params }) => answering(report.show(params.id)))
      .handleRaw("check", ({ params }) => answering(Effect.andThen(Body.none, check(params.id))))
      .handleRaw("settle", ({ params }) => decide(SettleBody, (operator, input) => settle(params.id, input, operator)))
  })
)

const mail = HttpApiBuilder.group(
  Api,
  "adminMail",
  Effect.fn(function* (handlers) {
    const { causes, list, preview, resolve, retry, retryAll } = yield* UnsettledMail
    return handlers
      .handle("list", ({ query }) => list(query, query.limit))
      .handle("causes", ({ query }) => Effect.map(causes(query, query.limit), (items) => ({ items })))
      .handleRaw("retryAll", () => decideAll(MailRetryBody, { preview, act: retryAll }))
      .handleRaw("retry", ({ params }) => decide(ReasonBody, (operator) => retry(params.id, operator)))
      .handleRaw("resolve", ({ params }) =>
        decide(ResolveBody, (operator, { outcome }) => resolve(params.id, outcome, operator))
      )
  })
)

export const layer = Layer.mergeAll(orders, payments, mail)
