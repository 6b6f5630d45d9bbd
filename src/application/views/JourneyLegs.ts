/** The legs of an order's journey: one for each event, and one for each payment that has none yet. Pure functions over what is stored. */
import type { EventFact, PaymentFact, RecoveryFact } from "./JourneyFacts.ts"
import { effectHops, sendingHops } from "./JourneyHops.ts"
import { fact, hop, type Surroundings } from "./JourneyParts.ts"
import type { Hop, HopState, Leg } from "./JourneyView.ts"
import { type Phase, recoveryKeyOf } from "../tasks/PaymentRecover.ts"

/** The worst state comes first: a leg has the worst of its hops. */
const severity: ReadonlyArray<HopState> = [
  "dead",
  "retrying",
  "gap",
  "parked",
  "waiting",
  "now",
  "discarded",
  "dropped",
  "done"
]

const worst = (hops: ReadonlyArray<Hop>): HopState =>
  severity.find((state) => hops.some((one) => one.state === state)) ?? "done"

/**
 * Each hop with the time since the last hop on its way whose time is known. A hop whose time is later is passed over. There are such hops: a
 * consumer can be faster than the acknowledgement. And an id's time may be a little ahead of the database's clock.
 */
const timed = (hops: ReadonlyArray<Hop>): ReadonlyArray<Hop> => {
  const byId = new Map(hops.map((one) => [one.id, one]))
  const since = (after: string | null, end: string): (Hop & { readonly at: string }) | undefined => {
    const before = after === null ? undefined : byId.get(after)
    if (before === undefined) return undefined
    const { at } = before
    return at !== null && Date.parse(at) <= Date.parse(end) ? { ...before, at } : since(before.after, end)
  }
  return hops.map((one) => {
    const from = one.at === null ? undefined : since(one.after, one.at)
    if (one.at === null || from === undefined) return one
    return { ...one, since: from.id, millis: Date.parse(one.at) - Date.parse(from.at) }
  })
}

const legOf = (fields: Pick<Leg, "title"> & Partial<Leg>, hops: ReadonlyArray<Hop>): Leg => {
  const state = worst(hops)
  const times = hops.flatMap(({ at }) => (at === null ? [] : [Date.parse(at)]))
  return {
    version: null,
    eventId: null,
    eventType: null,
    paymentId: null,
    ...fields,
    state,
    millis: state === "done" && times.length > 0 ? Math.max(...times) - Math.min(...times) : null,
    hops: timed(hops)
  }
}

/** No row has the time of a request: `at` is the first time that is stored of its work. */
const requestHop = (title: string, at: string | null, traceId: string | null, payment?: PaymentFact): Hop =>
  hop({
    id: "request",
    kind: "request",
    title,
    state: "done",
    at,
    traceId,
    facts: payment === undefined ? [] : fact("Idempotency-Key", payment.requestKey)
  })

const recoveryOf = (payment: PaymentFact, phase: Phase, { facts }: Surroundings): RecoveryFact | undefined =>
  facts.recoveries.find(({ key }) => key === recoveryKeyOf(payment.id, phase))

/** The trace of the request that stored the intent. The event has another one if the gateway's report came before its answer. */
const traceOf = (payment: PaymentFact, phase: Phase, around: Surroundings): string | null =>
  recoveryOf(payment, phase, around)?.traceId ?? null

const looked = (recovery: RecoveryFact | undefined): Hop["facts"] =>
  recovery === undefined || recovery.attempts === 0 ? [] : fact("looked up", recovery.attempts)

/** The intent, and what the gateway has said to it. */
const gatewayHops = (
  payment: PaymentFact,
  phase: Phase,
  around: Surroundings,
  outcome: { readonly at: string | null; readonly what: string } | undefined,
  traceId: string | null
): ReadonlyArray<Hop> => {
  const recovery = recoveryOf(payment, phase, around)
  const begun = phase === "charge" ? payment.createdAt : payment.refundBegunAt
  const intent = hop({
    id: "intent",
    kind: "intent",
    after: "request",
    title: phase === "charge" ? "Intent to charge" : "Intent to refund",
    state: "done",
    at: begun,
    traceId,
    facts: [...fact("payment", payment.id), ...fact("method", payment.method)]
  })
  const asked = {
    id: "charge",
    kind: "charge" as const,
    after: "intent",
    title: phase === "charge" ? "Charge" : "Refund",
    traceId,
    facts: looked(recovery)
  }
  if (outcome !== undefined) {
    const facts = [...fact("gateway", outcome.what), ...asked.facts]
    return [intent, hop({ ...asked, state: "done", at: outcome.at, facts })]
  }
  const page = `payments/${payment.id}`
  if (payment.status === "manual") {
    return [
      intent,
      hop({
        ...asked,
        state: "dead",
        at: payment.updatedAt,
        why: recovery?.lastError ?? "its outcome could not be found out, or the gateway contradicts itself",
        frees: "an operator asks the gateway, and settles it",
        page,
        command: `paid-once payments show ${payment.id}`
      })
    ]
  }
  const isAsked = phase === "charge" ? payment.unknownSince === null : (recovery?.attempts ?? 0) === 0
  if (isAsked) return [intent, hop({ ...asked, state: "now", process: recovery?.leasedBy ?? null })]
  return [
    intent,
    hop({
      ...asked,
      state: "waiting",
      process: recovery?.leasedBy ?? null,
      why: `the gateway has not told the outcome: ${recovery?.lastError ?? "it gave no answer"}`,
      frees: recovery === undefined ? "a later report of the gateway" : `it is looked up at ${recovery.executeAt}`,
      page,
      command: `paid-once payments show ${payment.id}`
    })
  ]
}

const titles: Readonly<Record<string, string>> = {
  OrderPlaced: "Placed",
  OrderPaid: "Paid",
  PaymentDeclined: "Payment declined",
  OrderCancelled: "Cancelled",
  OrderRefunded: "Refunded"
}

/** What led to the event's commit. */
const beginning = (event: EventFact, payment: PaymentFact | undefined, around: Surroundings): ReadonlyArray<Hop> => {
  const { drawnAt, occurredAt, traceId, type } = event
  if (payment !== undefined && type === "OrderRefunded") {
    const made = { at: occurredAt, what: "refunded" }
    const trace = traceOf(payment, "refund", around) ?? traceId
    return [requestHop("Refund", payment.refundBegunAt, trace), ...gatewayHops(payment, "refund", around, made, trace)]
  }
  if (payment !== undefined) {
    const declined = `declined: ${payment.declineReason ?? "no reason is stored"}`
    // When the gateway answered is not stored: its answer is recorded in the event's transaction.
    const outcome = { at: occurredAt, what: type === "PaymentDeclined" ? declined : "captured" }
    const trace = traceOf(payment, "charge", around) ?? traceId
    return [
      requestHop("Pay", payment.createdAt, trace, payment),
      ...gatewayHops(payment, "charge", around, outcome, trace)
    ]
  }
  if (type === "OrderPlaced") return [requestHop("Place an order", around.facts.drawnAt, traceId)]
  return [requestHop(type === "OrderCancelled" ? "Cancel" : "Request", drawnAt, traceId)]
}

const eventLeg = (event: EventFact, around: Surroundings): Leg => {
  const { eventId, occurredAt, traceId, type, version } = event
  const payment = around.facts.payments.find(({ id }) => id === event.paymentId)
  const before = beginning(event, payment, around)
  const commit = hop({
    id: "commit",
    kind: "commit",
    after: before.at(-1)?.id ?? null,
    title: "Order and event",
    state: "done",
    at: occurredAt,
    traceId,
    facts: [...fact("version", version), ...fact("event", eventId)]
  })
  const hops = [...before, commit, ...sendingHops(event, around, "commit"), ...effectHops(event, around)]
  return legOf({ title: titles[type] ?? type, version, eventId, eventType: type, paymentId: event.paymentId }, hops)
}

/** A payment without the event of its outcome: under way, for a person, or given back after its order was cancelled. */
const paymentLeg = (payment: PaymentFact, around: Surroundings): ReadonlyArray<Leg> => {
  const { events } = around.facts
  const { id: paymentId, status } = payment
  const hasEvent = (type: string) => events.some((event) => event.type === type && event.paymentId === paymentId)
  const captured = payment.capturedAt === null ? undefined : { at: payment.capturedAt, what: "captured" }
  const legs: Array<Leg> = []
  const traceId = traceOf(payment, "charge", around)
  if (status === "charging" || (status === "manual" && captured === undefined)) {
    const hops = [
      requestHop("Pay", payment.createdAt, traceId, payment),
      ...gatewayHops(payment, "charge", around, undefined, traceId)
    ]
    const isDead = status === "manual"
    const commit = hop({
      id: "commit",
      kind: "commit",
      after: "charge",
      title: "Order and event",
      state: "waiting",
      why: "the outcome of the charge is not known",
      frees: "the outcome"
    })
    legs.push(legOf({ title: isDead ? "Payment of unknown outcome" : "Paying", paymentId }, [...hops, commit]))
  }
  const isRefunding = status === "refunding" || (status === "manual" && captured !== undefined)
  if (isRefunding || (status === "refunded" && !hasEvent("OrderRefunded"))) {
    const made = status === "refunded" ? { at: payment.refundedAt, what: "refunded" } : undefined
    const trace = traceOf(payment, "refund", around) ?? traceId
    const hops = [
      requestHop("Refund", payment.refundBegunAt, trace),
      ...gatewayHops(payment, "refund", around, made, trace)
    ]
    legs.push(legOf({ title: made === undefined ? "Refunding" : "Given back", paymentId }, hops))
  }
  return legs
}

const beganAt = ({ hops }: Leg): string => hops.find(({ at }) => at !== null)?.at ?? "9999"

/** The legs of these facts, oldest first. Payments without an event belong to the last page. */
export const legsOf = (around: Surroundings, isLastPage: boolean): ReadonlyArray<Leg> =>
  [
    ...around.facts.events.map((event) => eventLeg(event, around)),
    ...(isLastPage ? around.facts.payments.flatMap((payment) => paymentLeg(payment, around)) : [])
  ].toSorted((one, other) => (beganAt(one) < beganAt(other) ? -1 : beganAt(one) > beganAt(other) ? 1 : 0))
