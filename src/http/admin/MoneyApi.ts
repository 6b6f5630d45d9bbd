/** The groups of orders, payments and mail: whose money goes back, and what waits for a person because nobody else knows its outcome. */
import { Schema } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { DecidedOrder } from "../../application/OrderDecision.ts"
import { DeadMailState, MailCause, MailPage, MailState } from "../../application/mail/MailReport.ts"
import { HandledMail, Resolution, RetriedMail } from "../../application/mail/UnsettledMail.ts"
import { PaymentPage, PaymentStory } from "../../application/views/PaymentReport.ts"
import { Checked, Settled, SettleInput } from "../../application/SettlePayment.ts"
import { PaymentStatus } from "../../domain/Payment.ts"
import { OrderIdText } from "../OrdersApi.ts"
import { PaymentIdText } from "../PaymentsApi.ts"
import { TaskIdText } from "../TasksApi.ts"
import {
  bulkBody,
  causesOf,
  causesQuery,
  decisionProblems,
  deciding,
  FilterText,
  oneOf,
  pageQuery,
  PreviewAnswer,
  reading,
  Reason,
  ReasonBody,
  since
} from "./AdminParts.ts"

/** The body of `POST /admin/payments/{id}/settle`. */
export const SettleBody = Schema.Struct({ ...SettleInput.fields, reason: Reason }).annotate({
  identifier: "SettlePayment",
  examples: [{ as: "declined", reason: "the bank's statement has no such charge" }]
})

/** The body of `POST /admin/mail/{id}/resolve`. */
export const ResolveBody = Schema.Struct({ outcome: Resolution, reason: Reason }).annotate({
  identifier: "ResolveMail",
  examples: [{ outcome: "delivered", reason: "the customer has it" }]
})

const mailFilter = {
  cause: Schema.optionalKey(FilterText),
  order: Schema.optionalKey(FilterText),
  customer: Schema.optionalKey(FilterText)
}

/** The body of `POST /admin/mail/retry`. */
export const MailRetryBody = bulkBody(
  { status: Schema.optionalKey(oneOf(DeadMailState.literals)), ...mailFilter, ...since },
  "RetryMail"
)
export const AdminOrdersApi = HttpApiGroup.make("adminOrders")
  .add(
    deciding("refund", "/admin/orders/:id/refund", {
      params: { id: OrderIdText },
      payload: ReasonBody,
      success: DecidedOrder,
      summary: "Refund a paid order, the whole amount",
      description: "The order reads `refunding` until the gateway has confirmed it."
    }),
    deciding("cancel", "/admin/orders/:id/cancel", {
      params: { id: OrderIdText },
      payload: ReasonBody,
      success: DecidedOrder,
      summary: "Cancel an order that is not paid",
      description: "A payment that is under way is given back if it is captured."
    })
  )
  .annotateMerge(
    OpenApi.annotations({ title: "Admin: orders", description: "Orders that an operator refunds or cancels." })
  )

export const AdminPaymentsApi = HttpApiGroup.make("adminPayments")
  .add(
    reading("list", "/admin/payments", {
      query: { status: Schema.optionalKey(oneOf(PaymentStatus.literals)), ...pageQuery(PaymentIdText) },
      success: PaymentPage,
      summary: "List payments, newest first",
      description:
        "Without `status` those that wait for a person (`manual`) or for the gateway (`charging`, `refunding`)."
    }),
    reading("show", "/admin/payments/:id", {
      params: { id: PaymentIdText },
      success: PaymentStory,
      summary: "Get the whole story of a payment"
    }),
    HttpApiEndpoint.post("check", "/admin/payments/:id/check", {
      params: { id: PaymentIdText },
      success: Checked,
      error: decisionProblems
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Ask the gateway about a payment, and compare",
        description:
          "Changes nothing, and has no body. `mayBecome` has the outcomes that a `manual` payment may be settled with."
      })
    ),
    deciding("settle", "/admin/payments/:id/settle", {
      params: { id: PaymentIdText },
      payload: SettleBody,
      success: Settled.annotate({ identifier: "SettledPayment" }),
      summary: "Settle a payment that waits for a person",
      description:
        "With what the gateway has done; `as` says what it can't tell, and `withoutGateway` allows that where it gives no answer at all."
    })
  )
  .annotateEndpoints(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotateMerge(OpenApi.annotations({ title: "Admin: payments", description: "Payments of unknown outcome." }))

export const AdminMailApi = HttpApiGroup.make("adminMail")
  .add(
    reading("list", "/admin/mail", {
      query: { status: Schema.optionalKey(oneOf(MailState.literals)), ...mailFilter, ...pageQuery(TaskIdText) },
      success: MailPage,
      summary: "List mail, newest first",
      description: "Without `status` mail that is not sent yet, or is dead. `customer` is an id or an address."
    }),
    reading("causes", "/admin/mail/causes", {
      query: { ...mailFilter, ...causesQuery },
      success: causesOf(MailCause.annotate({ identifier: "MailCause" }), "MailCauses"),
      summary: "Group retrying and dead mail by cause"
    }),
    deciding("retryAll", "/admin/mail/retry", {
      payload: MailRetryBody,
      success: Schema.Union([
        Schema.Struct({ preview: Schema.Literal(false), ...RetriedMail.fields }).annotate({
          identifier: "MailRetried"
        }),
        PreviewAnswer
      ]),
      summary: "Send all dead mail that matches again",
      description:
        "What is dead when it begins. An empty filter takes all. `mayBeCopies`: an earlier send of these may have arrived. `preview: true` says what it would do, and changes nothing."
    }),
    deciding("retry", "/admin/mail/:id/retry", {
      params: { id: TaskIdText },
      payload: ReasonBody,
      success: HandledMail.annotate({ identifier: "HandledMail" }),
      summary: "Send a mail again",
      description: "With its Message-ID. `mayBeCopy`: an earlier send may have arrived."
    }),
    deciding("resolve", "/admin/mail/:id/resolve", {
      params: { id: TaskIdText },
      payload: ResolveBody,
      success: HandledMail.annotate({ identifier: "HandledMail" }),
      summary: "Say what has become of a mail, or give it up"
    })
  )
  .annotateEndpoints(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotateMerge(OpenApi.annotations({ title: "Admin: mail", description: "Mail without a good end." }))
