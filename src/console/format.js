/** Figures, times and money as text. */

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 })
const oneDigit = new Intl.NumberFormat(undefined, { minimumFractionDigits: 1, maximumFractionDigits: 1 })

/**
 * 1284 → "1,284"; below ten with one digit, unless it is whole.
 *
 * @param {number} value
 */
export const number = (value) => (Math.abs(value) < 10 && !Number.isInteger(value) ? oneDigit : whole).format(value)

/**
 * 0.4 → "0.4 s", 200 → "3 min", 7300 → "2 h", 200000 → "2 d".
 *
 * @param {number} seconds
 */
export const duration = (seconds) => {
  if (seconds < 10) return `${oneDigit.format(Math.max(0, seconds))} s`
  if (seconds < 100) return `${whole.format(seconds)} s`
  // 100 s are more than "2 min" tells: an axis has such values.
  if (seconds < 600 && seconds % 60 !== 0) return `${oneDigit.format(seconds / 60)} min`
  if (seconds < 6_000) return `${whole.format(seconds / 60)} min`
  if (seconds < 172_800) return `${whole.format(seconds / 3_600)} h`
  return `${whole.format(seconds / 86_400)} d`
}

/**
 * 7.12 → "7.1 ms", 32 → "32 ms", 1500 → "1.5 s".
 *
 * @param {number} value
 */
export const millis = (value) =>
  value < 1_000 ? `${(value < 10 ? oneDigit : whole).format(value)} ms` : duration(value / 1_000)

/**
 * An amount with the digits that its currency has: 2500, EUR → "25.00 EUR".
 *
 * @param {number} amountMinor
 * @param {string} currency
 */
export const money = (amountMinor, currency) => {
  try {
    const digits =
      new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits ?? 2
    const figures = { minimumFractionDigits: digits, maximumFractionDigits: digits }
    return `${new Intl.NumberFormat(undefined, figures).format(amountMinor / 10 ** digits)} ${currency}`
  } catch {
    return `${whole.format(amountMinor)} ${currency} (minor units)`
  }
}

const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23"
})
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" })

/**
 * Local time; with the day where it is not today.
 *
 * @param {Date} at
 */
export const localTime = (at) =>
  at.toDateString() === new Date().toDateString() ? clock.format(at) : `${day.format(at)}, ${clock.format(at)}`

const exactClock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
  hourCycle: "h23"
})

/**
 * Local time with milliseconds, for steps that follow each other closely; with the day where it is not today.
 *
 * @param {Date} at
 */
export const exactTime = (at) =>
  at.toDateString() === new Date().toDateString()
    ? exactClock.format(at)
    : `${day.format(at)}, ${exactClock.format(at)}`

/**
 * "2026-11-23 22:04:05.123 UTC"
 *
 * @param {Date} at
 */
export const utcTime = (at) => `${at.toISOString().replace("T", " ").replace("Z", "")} UTC`

/**
 * Enough of an id to tell it from its neighbours: a UUIDv7 begins with its time and ends with chance.
 *
 * @param {string} id
 */
export const shortId = (id) => (id.length <= 22 ? id : `${id.slice(0, 13)}…${id.slice(-4)}`)

/**
 * 1, "event" → "1 event"; 2 → "2 events".
 *
 * @param {number} count
 * @param {string} thing
 * @param {string} [plural]
 */
export const counted = (count, thing, plural = `${thing}s`) => `${number(count)} ${count === 1 ? thing : plural}`
