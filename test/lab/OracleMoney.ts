/** The invariants of orders, payments and the gateway's books. */
import { keyRetentionMillis } from "./ModelGateway.ts"
import type { Answer, Invariant, Named, TopicRecord, Violation, World } from "./Oracle.ts"
import { recoveryDelaysMillis } from "./Parts.ts"
import { letterOf } from "./Requests.ts"

const broken = (invariant: Invariant, detail: string): Violation => ({ invariant, detail })
const sum = (numbers: ReadonlyArray<number>) => numbers.reduce((total, number) => total + number, 0)

/** A letter for each type of event. An order's events form a word, and a regular expression gives the allowed words. */
const letters: Readonly<Record<string, string>> = {
  OrderPlaced: "P",
  PaymentDeclined: "D",
  OrderPaid: "p",
  OrderRefunded: "r",
  OrderCancelled: "c"
}
const states = /^PD*(?:pr?|c)?$/
const stateBehind: Readonly<Record<string, string>> = { p: "paid", r: "refunded", c: "cancelled" }

/** The status that the answer's body must show. */
const bodyStatus: Readonly<Record<Answer["says"], unknown>> = {
  placed: "pending",
  paid: "paid",
  declined: 402,
  cancelled: "cancelled",
  refunding: "refunding",
  enqueued: "enqueued"
}

/** The statuses that an order may have after an answer has named this status. */
const later: Readonly<Record<string, ReadonlyArray<string>>> = {
  paid: ["paid", "refunded"],
  refunding: ["paid", "refunded"],
  refunded: ["refunded"],
  cancelled: ["cancelled"]
}

/** The types of an order's events, by version. */
const typesOf = (topic: ReadonlyArray<TopicRecord>, order: string): ReadonlyMap<number, string> =>
  new Map(topic.filter((record) => record.order === order).map(({ type, version }) => [version, type]))

const isTrue = ({ committed }: World, { order, payment, says }: Answer): boolean => {
  const row = committed.orders.find(({ id }) => id === order)
  const paid = committed.payments.find(({ id }) => id === payment)
  const isIn = (...statuses: ReadonlyArray<string>) => statuses.includes(row?.status ?? "")
  switch (says) {
    case "placed":
      return row !== undefined
    case "paid":
      return isIn("paid", "refunded") && paid !== undefined && paid.captured > 0
    case "declined":
      return paid?.status === "declined"
    case "cancelled":
      return isIn("cancelled")
    case "refunding":
      return isIn("paid", "refunded") && ["refunding", "refunded", "manual"].includes(paid?.status ?? "")
    case "enqueued":
      return committed.tasks.some(({ id }) => id === order)
  }
}

export const moneySafety = (world: World, named: Named): Violation | undefined => {
  const { answers, captures, committed, givenBack, refusals, topic } = world
  const ends = new Map<string, string>()
  for (const { event, payment, type } of topic) {
    if (payment === undefined) continue
    // A payment is captured or declined once, and may be refunded once.
    const key = `${payment} ${type === "OrderRefunded" ? "back" : "end"}`
    const end = ends.get(key)
    if (end !== undefined && end !== event) return broken("a payment ends once", `payment ${payment} ended twice`)
    ends.set(key, event)
  }
  for (const answer of answers) {
    const { says, text, title } = answer
    const body = JSON.parse(text.slice(text.indexOf("{"))) as { readonly status: unknown }
    if (body.status !== bodyStatus[says])
      return broken("an answer is true", `"${title}" was answered "${says}", and its body says ${String(body.status)}`)
    if (!isTrue(world, answer))
      return broken("an answer is true", `"${title}" was answered "${says}", and that is not what is stored`)
  }
  for (const { order, status, title } of refusals) {
    const row = committed.orders.find(({ id }) => id === order)
    if (later[status]?.includes(row?.status ?? "") === false)
      return broken("an answer is true", `"${title}" was refused, for the order is ${status}; it is ${row?.status}`)
  }
  for (const { id } of committed.orders) {
    const types = typesOf(topic, id)
    let word = ""
    for (let version = 1; types.has(version); version++) word += letters[types.get(version)!] ?? "?"
    // Words with gaps are not checked: an operator has discarded an event, or another invariant reports the gap.
    if (word.length === types.size && word !== "" && !states.test(word))
      return broken(
        "an order goes the way of its states",
        `the events of order ${letter(named, id)} are ${[...types.values()].join(", ")}`
      )
  }
  const captured = new Set<string>()
  for (const { amountMinor } of captures) {
    const order = letterOf(amountMinor)
    if (captured.has(order)) return broken("an order is captured at most once", `order ${order} was captured twice`)
    captured.add(order)
  }
  return sum(givenBack.map(({ amountMinor }) => amountMinor)) > sum(captures.map(({ amountMinor }) => amountMinor))
    ? broken("the money adds up", "more was given back than was captured")
    : undefined
}

const letter = (named: Named, order: string) => named({ order, version: 1 }).slice(0, -1)

/** `told`: the orders of which no event was discarded, so that their events tell their whole history. */
export const moneyAtRest = (world: World, told: ReadonlySet<string>, named: Named): Violation | undefined => {
  const { captures, committed, givenBack, pastMillis, topic } = world
  for (const { id, status, version } of committed.orders) {
    if (!told.has(id)) continue
    const types = typesOf(topic, id)
    const last = letters[types.get(version) ?? ""] ?? ""
    if (status !== (stateBehind[last] ?? "pending"))
      return broken(
        "an order is what its events say",
        `order ${letter(named, id)} is ${status}, and the last of its events is ${types.get(version)}`
      )
  }
  for (const { captured, id, order, status } of committed.payments) {
    const isCancelled = committed.orders.some((one) => one.id === order && one.status === "cancelled")
    if (status === "charging" || status === "refunding")
      return broken("no payment is stuck", `a payment of order ${letter(named, order)} is still ${status}`)
    if (status === "manual" && pastMillis < keyRetentionMillis / 2 && !isUsedUp(world, id))
      return broken("no payment is stuck", `a payment of order ${letter(named, order)} is manual, and could be settled`)
    if (!told.has(order)) continue
    const types = topic.filter(({ payment }) => payment === id).map(({ type }) => type)
    const wanted =
      status === "declined"
        ? "PaymentDeclined"
        : status === "refunded"
          ? "OrderRefunded"
          : captured > 0
            ? "OrderPaid"
            : undefined
    // A cancelled order gets no more events of its payments.
    if (wanted === undefined || isCancelled ? types.length > (isCancelled ? 1 : 0) : !types.includes(wanted))
      return broken(
        "a payment is what its events say",
        `a payment of order ${letter(named, order)} is ${status}, and its events are ${types.join(", ") || "none"}`
      )
  }
  const totals = (all: ReadonlyArray<{ readonly amountMinor: number }>) => sum(all.map((one) => one.amountMinor))
  const paidOrders = sum(committed.orders.filter(({ status }) => status === "paid").map(({ total }) => total))
  // Captured money of cancelled orders whose refund is manual.
  const held = sum(
    committed.payments
      .filter(({ order, status }) => status === "manual" && !isPaid(world, order))
      .map(({ captured }) => captured)
  )
  const announced = sum([...new Map(topic.map((record) => [record.event, record.paid])).values()])
  // Events that an operator has given up at analytics are missing in the revenue.
  const unheard = committed.inbox.letters.filter(
    ({ consumer, status }) => consumer === "analytics" && status === "discarded"
  )
  const heard = sum([
    ...new Map(
      topic
        .filter(({ event }) => !unheard.some((letter) => letter.event === event))
        .map(({ event, paid }) => [event, paid])
    ).values()
  ])
  const kept = totals(captures) - totals(givenBack)
  if (
    kept !== paidOrders + held ||
    committed.revenue !== heard ||
    (told.size === committed.orders.length && announced !== paidOrders)
  ) {
    return broken(
      "the money adds up",
      `captured ${totals(captures)}, given back ${totals(givenBack)}, paid orders ${paidOrders}, revenue ${committed.revenue}`
    )
  }
  return undefined
}

const isPaid = ({ committed }: World, order: string): boolean =>
  committed.orders.some(({ id, status }) => id === order && status === "paid")

/** Whether all runs of the payment's recovery are used up. */
const isUsedUp = ({ committed }: World, payment: string): boolean =>
  committed.tasks.some(({ attempts, key }) => attempts >= recoveryDelaysMillis.length && key?.startsWith(payment))
