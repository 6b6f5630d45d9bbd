/**
 * Orders that the console itself places and pays: one on a click, or some a second as load. They go through the same API as a shop's.
 */
import { exchange, Problem } from "./api.js"
import { makeStore } from "./store.js"

/** What the sandbox gateway does with a payment method. */
export const paymentMethods = [
  { value: "pm_ok", label: "is captured at once" },
  { value: "pm_declined", label: "is declined" },
  { value: "pm_slow", label: "is captured slowly" },
  { value: "pm_flaky", label: "fails first, then works" },
  { value: "pm_timeout_then_captured", label: "is captured without an answer" },
  { value: "pm_timeout_then_nothing", label: "gets no answer and no charge" }
]

/** Two books of 12.50: small figures are easy to follow. */
const lines = (/** @type {number} */ quantity) => [{ sku: "book-42", quantity, unitAmountMinor: 1_250 }]

/** A key in the console's own name, so that a shop's can't collide with it. `randomUUID` exists with TLS or on this machine only. */
const newKey = () =>
  `console-${[...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`

/** @typedef {{ readonly id: string, readonly status: string, readonly version: number }} Order */

/**
 * @param {number} [quantity]
 * @returns {Promise<Order>}
 */
export const place = async (quantity = 2) => {
  const { body } = await exchange("POST", "/orders", {
    body: { customerId: "console", currency: "EUR", lines: lines(quantity) },
    headers: { "idempotency-key": newKey() }
  })
  return /** @type {Order} */ (body)
}

/**
 * Pays an order. `declined` and `unknown` are outcomes, and no failures.
 *
 * @param {string} orderId
 * @param {string} paymentMethod
 * @returns {Promise<"paid" | "declined" | "unknown">}
 */
export const pay = async (orderId, paymentMethod) => {
  try {
    const { status } = await exchange("POST", `/orders/${orderId}/pay`, {
      body: { paymentMethod },
      headers: { "idempotency-key": newKey() }
    })
    return status === 202 ? "unknown" : "paid"
  } catch (error) {
    if (error instanceof Problem && error.status === 402) return "declined"
    throw error
  }
}

/** Enough to see every lane move, and far below what the service takes on one core. */
export const maxPerSecond = 20

/** Load that somebody has forgotten ends by itself. */
const maxMinutes = 10

/**
 * HTTP/1.1 gives a browser six connections to a server: one is the stream's, and two are left to the pages. A service that has become slow is not hit
 * harder, either: what would exceed this is left out, and counted.
 */
const maxInFlight = 3

/**
 * @typedef {object} Traffic
 * @property {number} perSecond 0: off.
 * @property {string} method `mixed`: most are captured, some fail in each way.
 * @property {number} placed
 * @property {number} paid
 * @property {number} declined
 * @property {number} unknown Answered 202: the service looks for the outcome.
 * @property {number} failed
 * @property {number} skipped
 * @property {number} inFlight
 * @property {string | undefined} problem The last one.
 * @property {string | undefined} stopped Why it has stopped by itself.
 */

/** @type {Traffic} */
const none = {
  perSecond: 0,
  method: "pm_ok",
  placed: 0,
  paid: 0,
  declined: 0,
  unknown: 0,
  failed: 0,
  skipped: 0,
  inFlight: 0,
  problem: undefined,
  stopped: undefined
}

/** What the load has sent, and what came of it. */
export const traffic = makeStore(none)

let timer = 0
let endTimer = 0

/** @param {string} method */
const methodNow = (method) => {
  if (method !== "mixed") return method
  const dice = Math.random()
  const rare = paymentMethods[1 + Math.floor(Math.random() * (paymentMethods.length - 1))]
  return dice < 0.8 || rare === undefined ? "pm_ok" : rare.value
}

/** @param {Partial<Record<"placed" | "paid" | "declined" | "unknown" | "failed" | "skipped" | "inFlight", number>>} by */
const count = (by) =>
  traffic.update((now) => ({
    ...now,
    ...Object.fromEntries(
      Object.entries(by).map(([key, value]) => [key, now[/** @type {keyof typeof by} */ (key)] + value])
    )
  }))

const one = async () => {
  if (traffic.get().inFlight >= maxInFlight) return count({ skipped: 1 })
  count({ inFlight: 1 })
  try {
    const order = await place()
    count({ placed: 1 })
    count({ [await pay(order.id, methodNow(traffic.get().method))]: 1 })
  } catch (error) {
    count({ failed: 1 })
    traffic.update((now) => ({ ...now, problem: error instanceof Error ? error.message : String(error) }))
  } finally {
    count({ inFlight: -1 })
  }
}

/**
 * Stops the load. What is under way ends.
 *
 * @param {string} [why] Where it stops by itself.
 */
export const stopLoad = (why) => {
  clearInterval(timer)
  clearTimeout(endTimer)
  traffic.update((now) => ({ ...now, perSecond: 0, stopped: why }))
}

const onHidden = () => {
  if (document.visibilityState === "hidden" && traffic.get().perSecond > 0)
    stopLoad("It stopped when this page was hidden.")
}

/**
 * Places and pays so many orders a second until it is stopped, the page is hidden, or ten minutes are over.
 *
 * @param {number} perSecond
 * @param {string} method
 */
export const setLoad = (perSecond, method) => {
  const rate = Math.min(maxPerSecond, Math.max(0, Math.round(perSecond)))
  const { perSecond: before } = traffic.get()
  clearInterval(timer)
  if (rate === 0) return stopLoad()
  // A new load begins to count anew; a changed rate goes on.
  traffic.update((now) => ({
    ...(before === 0 ? { ...none, inFlight: now.inFlight } : now),
    perSecond: rate,
    method,
    stopped: undefined
  }))
  if (before === 0) {
    document.addEventListener("visibilitychange", onHidden)
    clearTimeout(endTimer)
    endTimer = window.setTimeout(() => stopLoad(`It stopped after ${maxMinutes} minutes.`), maxMinutes * 60_000)
  }
  timer = window.setInterval(() => void one(), 1_000 / rate)
}
