/** `paid-once payments list|show|check|settle`: payments that wait for a person or for the gateway. */
import { Console, Effect, Option, Schema, SchemaTransformation } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { Outcome } from "../application/GatewayFindings.ts"
import { PaymentReport, type PaymentStory } from "../application/views/PaymentReport.ts"
import { type Checked, SettlePayment } from "../application/SettlePayment.ts"
import { PaymentId } from "../domain/Ids.ts"
import { format } from "../domain/Money.ts"
import { type Payment, PaymentStatus } from "../domain/Payment.ts"
import {
  by,
  json,
  onDatabase,
  onGateway,
  operatorOf,
  pageFilter,
  pageFlags,
  print,
  printPage,
  reason,
  table
} from "./Operator.ts"
import { ExitStatus } from "./Process.ts"

const Id = Schema.String.check(Schema.isUUID(7)).pipe(Schema.decodeTo(PaymentId, SchemaTransformation.toLowerCase()))
const paymentId = Argument.String("payment-id").pipe(
  Argument.withDescription("the payment's id, as `payments list` shows it"),
  Argument.withSchema(Id)
)

const amountOf = ({ amountMinor, currency, ...payment }: Payment) =>
  `${format({ amountMinor, currency })}, captured ${format({ amountMinor: payment.capturedMinor, currency })}, refunded ${format({ amountMinor: payment.refundedMinor, currency })}`

const list = Command.make(
  "list",
  {
    json,
    status: Flag.Literals("status", PaymentStatus.literals).pipe(
      Flag.withDescription("only payments in this state (default: manual, charging and refunding)"),
      Flag.optional
    ),
    ...pageFlags(Id)
  },
  Effect.fnUntraced(function* ({ json, limit, status, ...flags }) {
    const filter = { ...pageFilter(flags), ...(Option.isSome(status) ? { statuses: [status.value] } : {}) }
    const page = yield* onDatabase(PaymentReport.use((report) => report.list(filter, limit)))
    yield* printPage(json, page, ["PAYMENT", "STATUS", "SINCE", "ORDER", "AMOUNT"], (payment) => [
      payment.id,
      payment.status,
      payment.updatedAt,
      payment.orderId,
      format(payment)
    ])
  })
).pipe(Command.withDescription("List payments that need a person (manual), or are under way; newest first"))

const shown = ({ order, payment, story }: PaymentStory) => [
  ...table([
    ["payment", payment.id],
    ["status", `${payment.status}, since ${payment.updatedAt}`],
    ["amount", amountOf(payment)],
    ["method", payment.paymentMethod],
    ["order", `${order.id}: ${order.status}, version ${order.version}, of ${order.customerId}`]
  ]),
  ...table(story.map(({ at, of, what }) => [at, of, what]))
]

const show = Command.make(
  "show",
  { json, paymentId },
  Effect.fnUntraced(function* ({ json, paymentId }) {
    const story = yield* onDatabase(PaymentReport.use((report) => report.show(paymentId)))
    yield* print(json, story, () => shown(story))
  })
).pipe(Command.withDescription("Show the whole story of a payment: its order, attempts, and who did what to it"))

const verdicts: Readonly<Record<Checked["verdict"], string>> = {
  agree: "The books agree.",
  differ: "The books differ.",
  unknown: "The gateway does not tell enough to compare."
}

const checked = ({ charge, mayBecome, payment, refund, verdict }: Checked) => [
  verdicts[verdict],
  ...table([
    ["here", `${payment.status}: ${amountOf(payment)}`],
    ["charge", charge.words],
    ["refund", refund.words]
  ]),
  ...(mayBecome.length === 0
    ? []
    : [`It waits for a person: payments settle ${payment.id}, as ${mayBecome.join(" or ")}`])
]

const check = Command.make(
  "check",
  { json, paymentId },
  Effect.fnUntraced(function* ({ json, paymentId }) {
    const found = yield* onGateway(SettlePayment.use((payments) => payments.check(paymentId)))
    yield* print(json, found, () => checked(found))
    if (found.verdict !== "agree") return yield* Effect.fail(new ExitStatus(1))
  })
).pipe(Command.withDescription("Ask the gateway about a payment, and compare; exit status 1 unless the books agree"))

const settle = Command.make(
  "settle",
  {
    json,
    paymentId,
    as: Flag.Literals("as", Outcome.literals).pipe(
      Flag.withDescription("what has become of it, where the gateway does not tell"),
      Flag.optional
    ),
    withoutGateway: Flag.Boolean("without-gateway").pipe(
      Flag.withDescription("settle it with --as although the gateway gives no answer"),
      Flag.withDefault(false)
    ),
    reason,
    by
  },
  Effect.fnUntraced(function* ({ as, by, json, paymentId, reason, withoutGateway }) {
    if (withoutGateway && Option.isNone(as)) {
      yield* Console.error("paid-once: --without-gateway needs --as: nobody else says what has become of the payment")
      return yield* Effect.fail(new ExitStatus(2))
    }
    const input = { withoutGateway, ...(Option.isSome(as) ? { as: as.value } : {}) }
    const settled = yield* onGateway(
      SettlePayment.use((payments) => payments.settle(paymentId, input, operatorOf({ by, reason })))
    )
    const { changed, orderStatus, payment } = settled
    yield* print(json, settled, () => [
      `Payment ${payment.id} is ${payment.status}${changed ? "" : " already"}, and its order ${orderStatus}.`
    ])
  })
).pipe(
  Command.withDescription("Settle a manual payment with what the gateway says, or with --as where it does not tell")
)

/** The command. */
export const payments = Command.make("payments").pipe(Command.withSubcommands([list, show, check, settle]))
