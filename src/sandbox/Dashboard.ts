/**
 * Refunds that a person makes in the gateway's dashboard, and disputes that a bank opens there. The service has not asked for them, and hears of
 * them by webhook alone.
 */
import { Effect, Option, Schema } from "effect"
import { HttpServerResponse } from "effect/http"
import type { SqlError } from "effect/sql"
import { shortText } from "../domain/Text.ts"
import * as Body from "../http/Body.ts"
import { Problem } from "../http/Problems.ts"
import type { BooksService, Report } from "./Books.ts"

const charge = shortText(255)
/** Without an amount the whole charge is refunded. */
const RefundBody = Schema.Struct({
  charge,
  amountMinor: Schema.optionalKey(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })))
})
/** A dispute is opened, and later lost or won. Its money does not move in this sandbox. */
const DisputeBody = Schema.Struct({
  charge,
  status: Schema.optionalKey(Schema.Literals(["opened", "lost", "won"])),
  reason: Schema.optionalKey(shortText(500))
})

/** The handlers, with the server's books and the way in which it reports. */
export const make = ({
  books,
  drawKey,
  reportOf,
  sendReport
}: {
  readonly books: BooksService
  readonly drawKey: () => string
  readonly reportOf: (event: object) => Effect.Effect<Report | undefined>
  readonly sendReport: (report: Report | undefined) => Effect.Effect<void, SqlError.SqlError>
}) => {
  const captured = Effect.fnUntraced(function* (key: string) {
    const found = yield* books.findCharge(key)
    return Option.isSome(found) && found.value.status === "captured"
      ? found.value
      : yield* new Problem({ status: 404, detail: `there is no captured charge ${key}` })
  })

  const refund = Effect.gen(function* () {
    const body = yield* Body.decode(RefundBody)
    const { amountMinor: wholeMinor, currency } = yield* captured(body.charge)
    const amount = { amountMinor: body.amountMinor ?? wholeMinor, currency }
    // No key of the service: the refund has one of its own.
    const key = `re_${drawKey()}`
    const report = yield* reportOf({ type: "refund.made", key, charge: body.charge, ...amount })
    const made = yield* books.refund({ key, chargeKey: body.charge, ...amount }, report)
    if ("refused" in made) return yield* new Problem({ status: 422, detail: made.refused })
    yield* sendReport(report)
    return HttpServerResponse.jsonUnsafe({ status: "refunded", key, ...amount })
  })

  const dispute = Effect.gen(function* () {
    const { charge, reason, status = "opened" } = yield* Body.decode(DisputeBody)
    const { amountMinor, currency } = yield* captured(charge)
    const key = `dp_${drawKey()}`
    const about = { key, charge, amountMinor, currency, ...(reason === undefined ? {} : { reason }) }
    const report = yield* reportOf({ type: `dispute.${status}`, ...about })
    if (report !== undefined) yield* books.report(report)
    yield* sendReport(report)
    return HttpServerResponse.jsonUnsafe({ status, ...about })
  })

  return { refund, dispute }
}
