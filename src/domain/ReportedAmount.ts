/** An amount as another company reports it. It is compared, and never computed with: the payment's own amount is what counts. */
import { Schema } from "effect"
import { format, Money } from "./Money.ts"

/** The fields of a report that name an amount: each may be missing, or hold anything at all. */
export const fields = {
  amountMinor: Schema.optionalKey(Schema.Unknown),
  currency: Schema.optionalKey(Schema.Unknown)
}

/** An amount that nobody has checked. */
export interface ReportedAmount {
  readonly amountMinor?: unknown
  readonly currency?: unknown
}

/** Whether the report names another amount or another currency. A report that names neither contradicts nothing. */
export const contradicts = (reported: ReportedAmount, expected: Money): boolean =>
  (reported.amountMinor !== undefined && reported.amountMinor !== expected.amountMinor) ||
  (reported.currency !== undefined && reported.currency !== expected.currency)

/** Whether the report names exactly this amount. */
export const confirms = (reported: ReportedAmount, expected: Money): boolean =>
  reported.amountMinor === expected.amountMinor && reported.currency === expected.currency

const isMoney = Schema.is(Money)

/** The amount for a person to read. The caller bounds the text: the fields may hold anything. */
export const describe = (reported: ReportedAmount): string => {
  if (isMoney(reported)) return format(reported)
  const { amountMinor, currency } = reported
  return amountMinor === undefined && currency === undefined
    ? "an amount that it does not name"
    : `amountMinor ${named(amountMinor)} and currency ${named(currency)}`
}

/** A deep value is not written out: that would need as much stack as it is deep. */
const named = (value: unknown): string =>
  value === undefined ? "missing" : typeof value === "object" && value !== null ? "an object" : JSON.stringify(value)
