/** Money in the smallest unit of its currency: whole numbers only, nothing is ever rounded. */
import { Result, Schema } from "effect"

/** The ISO 4217 codes of currencies in use, by Unicode's list as the runtime carries it; not funds, metals or test codes. */
const currencies: ReadonlySet<string> = new Set(Intl.supportedValuesOf("currency"))

/** An ISO 4217 currency code: three capital letters, and one that exists. */
export const Currency = Schema.String.check(
  Schema.makeFilter((code: string) => currencies.has(code) || "must be an ISO 4217 currency code, for example EUR")
)
  .pipe(Schema.brand("Currency"))
  .annotate({ description: "ISO 4217 currency code" })
export type Currency = typeof Currency.Type

/** The largest total: the largest whole number that JSON's readers agree on (2⁵³ − 1). */
export const maxTotalMinor = Number.MAX_SAFE_INTEGER

/** An amount in minor units (cents, yen), 1 … 2⁵³ − 1. */
export const AmountMinor = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: maxTotalMinor })).pipe(
  Schema.brand("AmountMinor")
)
export type AmountMinor = typeof AmountMinor.Type

/**
 * A sum of amounts in minor units, as decimal digits. Of two amounts the sum may pass 2⁵³ − 1, and a JSON number is not exact from there on.
 */
export const SumMinor = Schema.String.check(
  Schema.isPattern(/^-?\d+$/, { message: "must be a whole number in decimal digits" })
).annotate({ description: "A sum in minor units, as decimal digits: it may be larger than a JSON number is exact" })

/** An amount with its currency, as events carry it. */
export const Money = Schema.Struct({ amountMinor: AmountMinor, currency: Currency })
export type Money = typeof Money.Type

/** The exact sum of quantity · unit amount, or the reason why there is none: computed without rounding on the way. */
export const totalOf = (
  lines: ReadonlyArray<{ readonly quantity: number; readonly unitAmountMinor: number }>
): Result.Result<AmountMinor, string> => {
  let total = 0n
  for (const line of lines) total += BigInt(line.quantity) * BigInt(line.unitAmountMinor)
  if (total > BigInt(maxTotalMinor))
    return Result.fail(`the total of all lines is ${total}, more than ${maxTotalMinor}`)
  return total < 1n
    ? Result.fail(`the total of all lines is ${total}, less than 1`)
    : Result.succeed(AmountMinor.make(Number(total)))
}

/**
 * Currencies whose smallest unit is not a hundredth. The runtime's own list (CLDR) is about cash, and knows no fils of a dinar in Iraq.
 *
 * Source: ISO 4217, list one, column "minor units".
 */
export const digitsOtherThanTwo: ReadonlyMap<string, number> = new Map([
  ...["BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV"].map(
    (code) => [code, 0] as const
  ),
  ...["XAF", "XOF", "XPF"].map((code) => [code, 0] as const),
  ...["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"].map((code) => [code, 3] as const),
  ...["CLF", "UYW"].map((code) => [code, 4] as const)
])

/** An amount for a person to read, as its currency writes it: 12.50 EUR, 1250 JPY, 1.250 KWD. Exact, whatever its size. */
export const format = ({
  amountMinor,
  currency
}: {
  readonly amountMinor: number | bigint
  readonly currency: string
}): string => {
  const digits = digitsOtherThanTwo.get(currency) ?? 2
  const sign = amountMinor < 0 ? "-" : ""
  const minor = String(amountMinor)
    .slice(sign.length)
    .padStart(digits + 1, "0")
  return `${sign}${digits === 0 ? minor : `${minor.slice(0, -digits)}.${minor.slice(-digits)}`} ${currency}`
}
