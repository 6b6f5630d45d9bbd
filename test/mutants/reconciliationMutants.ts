/** Mistakes in the reconciliation: a rule that sees nothing, a false alarm, and a repair that goes too far. */
import type { Mutant } from "./mutants.ts"

const room = "src/application/reconciliation"
const tests = "test/application/reconciliation"
const differences = `${tests}/Differences.test.ts`
const lostEvent = `${tests}/LostEvent.test.ts`
const twoDamages = `${tests}/TwoDamages.test.ts`
const lostCursor = `${tests}/LostCursor.test.ts`
const lostMarks = `${tests}/LostMarks.test.ts`
const skippedEvents = `${tests}/Skipped.test.ts`
const underWay = `${tests}/UnderWay.test.ts`
const restored = `${tests}/Restored.test.ts`

/** A rule that misses its difference. */
const blind = (rule: string, test: string, file: string, find: string, replace: string): Mutant => ({
  name: `blind-${rule}`,
  breaks: `${rule} is not found`,
  file: `${room}/${file}`,
  find,
  replace,
  seenBy: { file: differences, test }
})

const gateway = "GatewayRules.ts"
const payments = "rules/PaymentRules.ts"
const events = "rules/EventRules.ts"
const billing = "rules/BillingRules.ts"
const inventory = "rules/InventoryRules.ts"

export const reconciliationMutants: ReadonlyArray<Mutant> = [
  blind(
    "gateway-charge-unknown",
    "the gateway has charged under a key that is no payment of ours",
    gateway,
    "return captured === refunded\n",
    "return captured >= refunded\n"
  ),
  blind(
    "gateway-capture-unrecorded",
    "a payment waits for a person, and the gateway has captured it",
    gateway,
    "if (ours === 0n) {\n    return broken(",
    "if (ours > amountMinor) {\n    return broken("
  ),
  blind(
    "gateway-refund-differs-without-capture",
    "a charge that was declined was refunded at the gateway",
    gateway,
    "return refunded === 0n\n",
    "return refunded >= 0n\n"
  ),
  blind(
    "gateway-capture-missing",
    "an order counts as paid, and the gateway has lost the capture",
    "GatewayWalk.ts",
    "yield* tell(yield* missing(",
    "yield* Effect.asVoid(missing("
  ),
  blind(
    "gateway-amount-differs",
    "the gateway has captured another amount",
    gateway,
    "first.amountMinor !== amountMinor ||",
    "first.amountMinor === -amountMinor ||"
  ),
  blind(
    "gateway-charged-twice",
    "the gateway has forgotten the key, and charged again",
    gateway,
    "if (captures.length > 1) {",
    "if (captures.length > 2) {"
  ),
  blind(
    "gateway-refund-unrecorded",
    "a person has refunded the charge at the gateway, and its report was lost",
    gateway,
    "return refunded === ours && back === 0n",
    "return refunded === ours && back > 0n"
  ),
  blind(
    "gateway-refund-missing",
    "a refund was never made at the gateway",
    gateway,
    "if (refunded === 0n)",
    "if (refunded > ours)"
  ),
  blind(
    "gateway-refund-differs",
    "a part was refunded at the gateway",
    gateway,
    "if (refunded === back) return undefined",
    "if (refunded <= ours && refunded !== ours) return undefined"
  ),
  {
    name: "lost-payment-passes-for-nobodys",
    breaks: "an operator refunds the rightful money of a payment whose row is lost",
    file: `${room}/GatewayWalk.ts`,
    find: "if (orderId === undefined) return one",
    replace: "if (orderId !== null) return one",
    seenBy: {
      file: differences,
      test: "the row of a payment is gone, and the ledger has booked it"
    }
  },
  {
    name: "refund-in-any-currency",
    breaks: "a refund in another currency passes for the payment's, and its repair makes the payment manual",
    file: `${room}/${gateway}`,
    find: "one.currency === currency",
    replace: "one.currency !== null",
    seenBy: {
      file: differences,
      test: "the charge was refunded at the gateway in another currency"
    }
  },
  {
    name: "refund-by-its-first-part",
    breaks: "a charge that was refunded in two parts is recorded by the first one, and becomes manual",
    file: `${room}/GatewayWalk.ts`,
    find: "(sum, one) => sum + one.amountMinor",
    replace: "(sum, one) => sum || one.amountMinor",
    seenBy: {
      file: differences,
      test: "a part was refunded at the gateway, and then the rest, as by hand says"
    }
  },
  blind(
    "captured-order-pending",
    "a payment is captured, and its order pending",
    payments,
    "p.status = 'captured' AND o.status = 'pending'",
    "p.status = 'charging' AND o.status = 'refunded'"
  ),
  blind(
    "captured-order-cancelled",
    "the payment of a cancelled order is captured",
    payments,
    "p.status = 'captured' AND o.status = 'cancelled'",
    "p.status = 'charging' AND o.status = 'refunded'"
  ),
  blind(
    "refunded-order-paid",
    "a payment is refunded, and its order paid",
    payments,
    "p.status = 'refunded' AND p.decline_reason IS NULL AND o.status = 'paid'",
    "p.status = 'refunded' AND p.decline_reason IS NOT NULL AND o.status = 'paid'"
  ),
  blind(
    "paid-without-capture",
    "an order is paid by hand, without a payment",
    payments,
    '"p.captured_minor > 0")',
    "\"p.captured_minor > 0 OR o.status = 'paid'\")"
  ),
  blind(
    "refunded-without-refund",
    "an order is refunded by hand, and its payment is not",
    payments,
    "\"p.status = 'refunded'\")",
    '"p.captured_minor > 0")'
  ),
  blind(
    "payment-amount-differs",
    "a payment has another amount than its order",
    payments,
    "p.amount_minor <> o.total_amount_minor OR",
    "p.amount_minor > o.total_amount_minor OR"
  ),
  blind(
    "recovery-missing",
    "a payment is charging, and its recovery has ended",
    payments,
    "t.state IN ('pending', 'processing', 'failed', 'dead')",
    "t.task_id IS NOT NULL"
  ),
  blind(
    "event-missing",
    "an event was deleted from the queue",
    events,
    "logged.events < looked.version ELSE",
    "logged.events < 1 ELSE"
  ),
  blind(
    "event-unarchived",
    "an event was deleted from the archive",
    events,
    "consumers)} AND NOT ${sql",
    "consumers)} AND ${sql"
  ),
  blind(
    "status-unannounced",
    "an order is cancelled by hand, without an event",
    events,
    "WHEN 'cancelled' THEN ARRAY['OrderCancelled']",
    "WHEN 'cancelled' THEN ARRAY['OrderPlaced']"
  ),
  blind(
    "event-without-change",
    "an event was published of an order that is gone",
    events,
    "(o.id IS NULL OR o.version < e.aggregate_version)",
    "o.version < e.aggregate_version"
  ),
  blind(
    "event-differs",
    "the row of an archived event has another amount",
    events,
    "told.money ->> 'amountMinor' IS DISTINCT FROM o.total_amount_minor::text",
    "told.money ->> 'amountMinor' IS NULL"
  ),
  blind(
    "event-differs-in-customer",
    "the row of an archived event names another customer",
    events,
    "OR e.data ->> 'customerId' IS DISTINCT FROM o.customer_id",
    "OR e.data ->> 'customerId' IS NULL"
  ),
  blind(
    "event-differs-in-payment",
    "the row of an archived event names no payment of its order",
    events,
    "WHERE p.order_id = o.id AND p.id::text = e.data ->> 'paymentId'))))",
    "WHERE p.id::text = e.data ->> 'paymentId'))))"
  ),
  blind(
    "event-differs-in-lines",
    "the row of a line names another sku",
    events,
    "AND (e.data -> 'lines')::jsonb IS DISTINCT FROM lines.items)",
    "AND e.data -> 'lines' IS NULL)"
  ),
  blind(
    "event-differs-in-time",
    "the row of an archived event has the time of another day",
    events,
    "OR NOT e.occurred_at BETWEEN",
    "OR e.occurred_at IS NULL AND NOT e.occurred_at BETWEEN"
  ),
  blind(
    "billing-entry-missing",
    "an entry was deleted from the ledger",
    billing,
    "AND l.debit_account = wanted.debit)",
    "OR l.debit_account = wanted.debit)"
  ),
  blind(
    "billing-entry-differs",
    "the amount of an entry was changed",
    billing,
    "l.amount_minor <> o.total_amount_minor OR l.currency",
    "l.currency"
  ),
  blind(
    "billing-entry-differs-in-account",
    "an entry credits another account",
    billing,
    "NOT IN (('gateway', 'sales'),",
    "NOT IN (('gateway', 'sales'), ('gateway', 'refunds'),"
  ),
  blind(
    "billing-entry-differs-in-event",
    "an entry names an event that is nobody's",
    billing,
    "OR (SELECT NOT bool_or(e.event_id = l.event_id)",
    "OR (SELECT NOT bool_or(true)"
  ),
  blind(
    "billing-entry-differs-in-time",
    "an entry has the time of another day",
    billing,
    "OR NOT l.occurred_at BETWEEN",
    "OR l.occurred_at IS NULL AND NOT l.occurred_at BETWEEN"
  ),
  blind(
    "lines-differ",
    "a line's price was changed",
    events,
    "AND lines.total <> o.total_amount_minor",
    "AND lines.total < o.total_amount_minor"
  ),
  blind(
    "mail-differs",
    "a receipt tells another amount",
    "rules/MailRules.ts",
    "' ' || wanted.amount || ' '",
    "wanted.amount"
  ),
  blind(
    "mail-differs-in-address",
    "a receipt goes to another customer",
    "rules/MailRules.ts",
    "OR split_part(t.payload ->> 'to', '@', 1) IS DISTINCT FROM wanted.name",
    ""
  ),
  blind(
    "mail-differs-in-text",
    "the text of a receipt names another order",
    "rules/MailRules.ts",
    "OR coalesce(strpos(t.payload ->> 'text', o.id::text), 0) = 0",
    ""
  ),
  blind(
    "mail-differs-in-subject",
    "the subject of a receipt names another order",
    "rules/MailRules.ts",
    "OR coalesce(strpos(t.payload ->> 'subject', o.id::text), 0) = 0",
    ""
  ),
  blind(
    "mail-sent-cancelled",
    "the task of a mail that was sent says cancelled",
    "rules/MailRules.ts",
    "t.state IN ('cancelled', 'dead')",
    "t.state IN ('dead')"
  ),
  blind("billing-entry-twice", "a sale was booked twice", billing, "HAVING count(*) > 1", "HAVING count(*) > 2"),
  blind(
    "billing-entry-unfounded",
    "a sale of an order that is not paid was booked",
    billing,
    "THEN ARRAY['paid', 'refunded'] ELSE",
    "THEN ARRAY['paid', 'refunded', 'cancelled'] ELSE"
  ),
  blind(
    "reservation-missing",
    "a reservation was deleted",
    inventory,
    "o.status IN ('pending', 'paid')\n",
    "o.status IN ('pending')\n"
  ),
  blind(
    "reservation-left-over",
    "a cancelled order holds goods",
    inventory,
    "o.status IN ('cancelled', 'refunded')",
    "o.status IN ('refunded')"
  ),
  blind(
    "reservation-unfounded",
    "a reservation has another quantity than the order",
    inventory,
    "lines.quantity IS DISTINCT FROM r.quantity OR",
    "lines.quantity > r.quantity OR"
  ),
  blind(
    "mail-missing",
    "the task of a receipt was deleted",
    "rules/MailRules.ts",
    "AND t.idempotency_key = event_id::text",
    ""
  ),
  blind(
    "revenue-differs",
    "a day's revenue was changed",
    "RevenueWalk.ts",
    "if (wanted === is) return []",
    "if (wanted >= is) return []"
  ),
  {
    name: "blind-cursor-lost",
    breaks: "a cursor that was set back is not found",
    file: `${room}/rules/CursorRules.ts`,
    find: "coalesce(c.version, 0) < o.version)",
    replace: "c.version IS NULL)",
    seenBy: { file: lostCursor, test: "a cursor behind its marks" }
  },
  {
    name: "sets-cursors-past-what-is-applied",
    breaks: "an event that the consumer has not applied counts as applied: its effect is lost",
    file: `${room}/rules/CursorRules.ts`,
    find: "AND EXISTS (SELECT FROM processed_events AS m WHERE",
    replace: "OR EXISTS (SELECT FROM processed_events AS m WHERE",
    seenBy: { file: lostCursor, test: "an event that is not applied" }
  },
  {
    name: "revenue-waits-for-the-newest",
    breaks: "today's revenue is never repaired while orders go on",
    file: `${room}/RevenueOfDay.ts`,
    find: "(uuid_v7_time(known.event_id) < clock_now() -",
    replace: "(uuid_v7_time(known.event_id) < clock_now() + interval '1 hour' -",
    seenBy: {
      file: "test/application/reconciliation/UnderWay.test.ts",
      test: "a day's revenue is repaired while sales of the last moment"
    }
  },
  {
    name: "blind-mark-lost",
    breaks: "a deleted mark is not found",
    file: `${room}/rules/CursorRules.ts`,
    find: "AND NOT EXISTS (SELECT FROM processed_events AS m WHERE m.consumer_name = named.consumer",
    replace: "AND NOT EXISTS (SELECT FROM processed_events AS m WHERE m.consumer_name <> ''",
    seenBy: { file: lostMarks, test: "that is gone is named and written again, and the revenue stays" }
  },
  {
    name: "blind-event-skipped",
    breaks: "a consumer that was moved past its events looks like one that has read all",
    file: `${room}/rules/CursorRules.ts`,
    find: "place.broker_offset > unread.broker_offset",
    replace: "place.broker_offset > unread.broker_offset + 1000",
    seenBy: { file: skippedEvents, test: "without mark and cursor, is named" }
  },
  {
    name: "takes-unread-for-skipped",
    breaks: "the newest event, which a consumer is about to read, is a difference",
    file: `${room}/rules/CursorRules.ts`,
    find: "place.broker_offset > unread.broker_offset",
    replace: "place.broker_offset <> unread.broker_offset",
    seenBy: { file: skippedEvents, test: "it is the newest of its partition" }
  },
  {
    name: "compares-offsets-of-two-topics",
    breaks: "after a topic was made anew every event that is not read yet is a difference",
    file: `${room}/rules/CursorRules.ts`,
    find: "AND place.published_at >= unread.published_at - interval '1 second'",
    replace: "",
    seenBy: { file: skippedEvents, test: "the topic was made anew, and begins at 0 again" }
  },
  {
    name: "takes-a-second-send-for-the-place",
    breaks: "after a lost acknowledgement events that a consumer has yet to read are differences",
    file: `${room}/rules/CursorRules.ts`,
    find: "AND m.processed_at >= e.published_at - interval '1 second'",
    replace: "",
    seenBy: { file: skippedEvents, test: "applied at its first place" }
  },
  {
    name: "takes-given-up-for-skipped",
    breaks: "an event that an operator has given up is a difference for ever",
    file: `${room}/rules/CursorRules.ts`,
    find: 'AND NOT ${sql.literal(isHeldOrGivenUp("unread.consumer", "unread"))}',
    replace: "",
    seenBy: { file: skippedEvents, test: "without mark and cursor, is named" }
  },
  {
    name: "blind-cursor-ahead",
    breaks: "a consumer drops the next events of an order, and nobody hears of it",
    file: `${room}/rules/CursorRules.ts`,
    find: "AND c.version > o.version\n",
    replace: "AND c.version > o.version + 7\n",
    seenBy: { file: lostMarks, test: "ahead of its order is set back" }
  },
  {
    name: "sets-cursors-past-what-was-sent",
    breaks: "the event that is on its way is dropped",
    file: `${room}/rules/CursorRules.ts`,
    find: "min(s.aggregate_version) - 1",
    replace: "min(s.aggregate_version)",
    seenBy: { file: lostMarks, test: "ahead of its order is set back" }
  },
  {
    name: "sets-back-cursors-of-a-restored-order",
    breaks: "after a restore a consumer takes the order's next event for the one that it has applied",
    file: `${room}/rules/CursorRules.ts`,
    find: "if (others.length > 0) {",
    replace: "if (others.length > 1) {",
    seenBy: { file: lostMarks, test: "of cursors of several consumers" }
  },
  {
    name: "revenue-by-marks-alone",
    breaks: "a deleted mark takes the event's amount off the revenue",
    file: `${room}/RevenueOfDay.ts`,
    find: "OR (known.is_certain AND",
    replace: "OR (false AND",
    seenBy: { file: lostMarks, test: "that is gone is named and written again, and the revenue stays" }
  },
  {
    name: "revenue-without-what-is-unread",
    breaks: "where cursor and mark are lost, a repair takes the event's amount off the revenue",
    file: `${room}/RevenueWalk.ts`,
    find: "if (unread > 0)",
    replace: "if (unread > 1)",
    seenBy: { file: lostMarks, test: "marks before it, no repair takes its amount off the revenue" }
  },
  {
    name: "differences-in-cents",
    breaks: "a person reads that 2500 EUR are missing where it is 25.00 EUR",
    file: `${room}/MoneyText.ts`,
    find: "ELSE 2 END",
    replace: "ELSE 0 END",
    seenBy: { file: `${tests}/MoneyText.test.ts`, test: "SQL writes an amount" }
  },
  {
    name: "hides-why-a-repair-was-refused",
    breaks: "a person reads what the repair would do, and not why it has done nothing",
    file: "src/cli/Reconcile.ts",
    find: '["refused", repair?.why ?? "the repair gave no reason"]',
    replace: '["--repair", rule.repair]',
    seenBy: { file: "test/operations/ReconcileCommand.test.ts", test: "books that agree, that differ" }
  },
  {
    name: "counts-what-is-under-way",
    breaks: "an effect that is on its way is told as missing, and applied twice by a repair",
    file: `${room}/SqlRule.ts`,
    find: "AND c.version >= o.version)`",
    replace: "AND c.version > 0)`",
    seenBy: { file: underWay, test: "events that are queued" }
  },
  {
    name: "stops-at-a-row-that-nobody-reads",
    breaks: "a payment's row with a wrong id keeps every other difference from being repaired",
    file: `${room}/Reconciliation.ts`,
    find: "Effect.catchDefect((defect) => unreadable(one, defect)),",
    replace: "",
    seenBy: { file: twoDamages, test: "the row of a payment has an id that no use case reads" }
  },
  {
    name: "reads-any-amount",
    breaks: "an archived event without an amount keeps the whole reconciliation from telling anything",
    file: `${room}/RevenueOfDay.ts`,
    find: "AND ${sql.literal(tellsAmount)}\n      UNION ALL",
    replace: "\n      UNION ALL",
    seenBy: { file: differences, test: "the row of an archived event has no data any more" }
  },
  blind(
    "event-differs-in-type",
    "the row of an archived event has a type that is none",
    events,
    "OR NOT e.event_type = ANY (${[...eventTypes]}::text[])",
    "OR NOT e.event_type = ANY (${[...eventTypes, 'Bogus']}::text[])"
  ),
  blind(
    "event-differs-in-reason",
    "the row of an archived declined payment tells another reason",
    events,
    "AND p.decline_reason = e.data ->> 'reason'",
    "AND p.decline_reason IS NOT NULL"
  ),
  {
    name: "takes-up-a-moved-payment",
    breaks: "the payment of another order's customer is refunded, or pays this order",
    file: `${room}/MayRepair.ts`,
    find: "  yield* mayFollow(orderId, paymentId)\n",
    replace: "",
    seenBy: { file: twoDamages, test: "and waits for a person" }
  },
  {
    name: "announces-by-any-payment",
    breaks: "an order that nobody has paid is told to be paid, by another customer's payment",
    file: `${room}/Books.ts`,
    find: "yield* mayFollow(locked.order.id, payer)",
    replace: "",
    seenBy: { file: twoDamages, test: "was moved to a pending one, whose row says paid, with version" }
  },
  {
    name: "follows-an-older-payment",
    breaks: "an order is paid by a payment that was there before it",
    file: `${room}/ToldOfPayment.ts`,
    find: "AND p.created_at < o.created_at",
    replace: "AND false",
    seenBy: { file: twoDamages, test: "a forgotten payment was moved to a younger order that is" }
  },
  {
    name: "keeps-what-is-forgotten",
    breaks: "the money of a cancelled order is kept for ever, for the archive has forgotten the order",
    file: `${room}/MayRepair.ts`,
    find: 'all.status === "cancelled" && all.effects.includes("OrderCancelled")',
    replace: "false",
    seenBy: { file: twoDamages, test: "what the archive has forgotten keeps no customer's money" }
  },
  {
    name: "asks-the-ledger-alone",
    breaks: "a payment that was moved to another order pays it, where its entry is not booked yet",
    file: `${room}/ToldOfPayment.ts`,
    find: "data ->> 'paymentId' = ${paymentId} AND aggregate_id <> ${orderId} LIMIT 1",
    replace: "false LIMIT 1",
    seenBy: { file: twoDamages, test: "and its key and entry are lost" }
  },
  {
    name: "cancels-what-was-placed",
    breaks: "an order that nobody has cancelled is announced as cancelled, and its goods are free",
    file: `${room}/MayRepair.ts`,
    find: 'if ((version === 0) !== (eventType === "OrderPlaced")) {',
    replace: "if (version < 0) {",
    seenBy: { file: twoDamages, test: "OrderPlaced is lost before it is published" }
  },
  {
    name: "refunds-what-nobody-paid",
    breaks: "a refund is told, booked and mailed of an order that was never paid",
    file: `${room}/MayRepair.ts`,
    find: 'if (eventType === "OrderRefunded" && !all.has("OrderPaid") && !told.isAnsweredPaid) {',
    replace: "if (version < 0) {",
    seenBy: { file: twoDamages, test: "OrderCancelled is lost before it is published, a late capture went back" }
  },
  {
    name: "cancels-what-was-declined",
    breaks: "the lost event of a declined payment is told as a cancellation",
    file: `${room}/MayRepair.ts`,
    find: "if (known >= rowVersion - 1) {",
    replace: "if (known < 0) {",
    seenBy: { file: twoDamages, test: "PaymentDeclined is lost before it is published" }
  },
  {
    name: "pays-what-was-cancelled",
    breaks: "a late capture makes a cancelled order paid, for its row says pending",
    file: `${room}/MayRepair.ts`,
    find: '(status === "pending" || status === "paid") &&',
    replace: 'status === "none" &&',
    seenBy: { file: twoDamages, test: "OrderCancelled is queued, the order" }
  },
  {
    name: "forgets-late-declines",
    breaks: "goods are reserved for a cancelled order, since its payment was declined later",
    file: `${room}/Told.ts`,
    find: "FILTER (WHERE NOT is_late)",
    replace: "",
    seenBy: { file: twoDamages, test: "its payment was declined later" }
  },
  {
    name: "takes-goods-for-a-word",
    breaks: "rightful money goes back, for the goods of a pending order were released",
    file: `${room}/MayRepair.ts`,
    find: " && all.known < last - 1)",
    replace: ")",
    seenBy: { file: twoDamages, test: "whose row says cancelled, and its reservation released" }
  },
  {
    name: "sees-one-mail-alone",
    breaks: "a customer gets a second receipt because the first one says that it tells of a refund",
    file: `${room}/MayRepair.ts`,
    find: " || mails.filter(isOther).length > others",
    replace: "",
    seenBy: { file: twoDamages, test: "of a receipt says something else" }
  },
  {
    name: "refunds-by-another-payment",
    breaks: "a paid order is refunded by the payment of another order",
    file: `${room}/ToldOfPayment.ts`,
    find: "if (other !== undefined) return",
    replace: "if (other === null) return",
    seenBy: { file: twoDamages, test: "the payment of a cancelled order was moved to a paid one" }
  },
  {
    name: "charges-what-was-declined",
    breaks: "a client who was told that his payment is declined is charged",
    file: `${room}/ToldOfPayment.ts`,
    find: "wasDeclined || !(isDeclineTold || answer === declined)",
    replace: "true",
    seenBy: { file: twoDamages, test: "PaymentDeclined is queued, and the payment" }
  },
  {
    name: "moves-money-without-a-request",
    breaks: "rightful money goes back, for its payment was moved to a cancelled order",
    file: `${room}/ToldOfPayment.ts`,
    find: "  wasDeclined || hasKey\n",
    replace: "  true\n",
    seenBy: { file: twoDamages, test: "the key of a payment is lost" }
  },
  {
    name: "pays-without-a-request",
    breaks: "an order becomes paid by a payment that was moved to it",
    file: `${room}/ToldOfPayment.ts`,
    find: "if (!payment.isPaidTold) yield* mustBeAsked(payment)",
    replace: "",
    seenBy: { file: twoDamages, test: "no book tells any more of a captured payment but its row" }
  },
  {
    name: "believes-a-decline-of-a-pending-order",
    breaks: "the money of a payment in flight goes back, since its row says declined, and its key is lost",
    file: `${room}/MayRepair.ts`,
    find: '(all.status === "cancelled" ? 0 : all.lateDeclines)',
    replace: "0",
    seenBy: { file: twoDamages, test: "the gateway has captured it, and its key is lost" }
  },
  {
    name: "believes-a-decline-without-an-answer",
    breaks:
      "the money of a payment in flight goes back, since its row says declined, and its order has a version too many",
    file: `${room}/MayRepair.ts`,
    find: "(payment.hasKey",
    replace: "(payment.hasKey && payment.answer !== null",
    seenBy: { file: twoDamages, test: "and the version of its order leaves room for that" }
  },
  {
    name: "cancels-beside-an-open-payment",
    breaks: "an order that the gateway has money of is told to be cancelled, and its money goes back",
    file: `${room}/MayRepair.ts`,
    find: "if (kept?.isOpen === true) {",
    replace: "if (kept === null) {",
    seenBy: { file: twoDamages, test: "has captured a payment that waits for a person" }
  },
  {
    name: "forgets-a-refund",
    breaks: "a refund is never made, and nobody hears of it, because its payment's row was set back to captured",
    file: "src/application/RecoverPayment.ts",
    find: 'return yield* outcomes.contradicted(id, "its refund was asked for, and its row does not say so")',
    replace: "return { status, answer: undefined }",
    seenBy: {
      file: "test/application/RecoverPayment.test.ts",
      test: "a refund whose payment's row was set back to captured"
    }
  },
  {
    name: "cancels-beside-an-unanswered-request",
    breaks:
      "an order is told to be cancelled while a payment of it is in flight, because that payment's row is damaged, too",
    file: `${room}/MayRepair.ts`,
    find: "AND response_status IS NULL",
    replace: "AND false",
    seenBy: { file: twoDamages, test: "and the row of its order says cancelled, with a version more" }
  },
  {
    name: "forgets-a-told-decline",
    breaks:
      "a cancellation is never told, because the request of the payment that was declined before has lost its answer",
    file: `${room}/MayRepair.ts`,
    find: "AND e.event_type = 'PaymentDeclined'",
    replace: "AND false",
    seenBy: { file: lostEvent, test: "and the request of the payment that was declined before" }
  },
  {
    name: "believes-a-version-of-a-pending-order",
    breaks: "a sale is told behind a version that no event ever had",
    file: `${room}/MayRepair.ts`,
    find: " && known >= rowVersion - 1)",
    replace: ")",
    seenBy: { file: twoDamages, test: "the row of its pending order has a version too many" }
  },
  {
    name: "waits-for-what-nobody-can-tell",
    breaks: "a payment stays without an outcome for ever, because the decline before it was never told",
    file: `${room}/MayRepair.ts`,
    find: ' && !(status === "pending" && rowVersion > 1 && known >= rowVersion - 1)',
    replace: "",
    seenBy: { file: lostEvent, test: "an event that can't be told holds up no money" }
  },
  {
    name: "holds-money-back-for-an-event",
    breaks: "the money of a late capture stays, because an event of its order is lost",
    file: `${room}/MayRepair.ts`,
    find: 'if (all.status === "pending" && !payment.wasDeclined) yield* mustBeTold(all)',
    replace: 'if (all.version < all.rowVersion) return yield* cantMend("its event is missing")',
    seenBy: { file: lostEvent, test: "and the gateway has captured it after all" }
  },
  {
    name: "waits-for-what-is-forgotten",
    breaks: "a refund is never recorded, because the archive has forgotten the sale",
    file: `${room}/MayRepair.ts`,
    find: "isKept && version < rowVersion",
    replace: "version < rowVersion",
    seenBy: { file: lostEvent, test: "its cursors are lost, and a person has refunded it" }
  },
  {
    name: "tells-behind-a-hole",
    breaks: "a refund is told behind a sale that was lost, which nobody can tell any more",
    file: `${room}/MayRepair.ts`,
    find: "if (version === told.rowVersion) yield* mustBeTold(told)",
    replace: "",
    seenBy: { file: twoDamages, test: "the second repair tells both, in order" }
  },
  {
    name: "captures-behind-a-hole",
    breaks: "a sale is told behind OrderPlaced, which was lost and can't be told any more",
    file: `${room}/MayRepair.ts`,
    find: 'if (all.status === "pending" && !payment.wasDeclined) yield* mustBeTold(all)',
    replace: "",
    seenBy: { file: twoDamages, test: "the second repair tells both, in order" }
  },
  {
    name: "takes-a-refund-for-under-way",
    breaks: "a sale is told of a payment that the gateway has never captured, because its row says refunding",
    file: `${room}/GatewayRules.ts`,
    find: '(payment.status === "refunding" && first !== undefined)',
    replace: 'payment.status === "refunding"',
    seenBy: { file: twoDamages, test: "the gateway has never heard of a payment in flight" }
  },
  {
    name: "computes-a-day-from-holes",
    breaks: "a right day of revenue loses a sale that archive and marks have lost",
    file: `${room}/RevenueWalk.ts`,
    find: '  "event-unarchived",\n',
    replace: "",
    seenBy: { file: twoDamages, test: "and analytics its mark at it" }
  },
  {
    name: "refuses-late-declines",
    breaks: "the money of a late capture stays, since its payment was declined after the cancellation",
    file: `${room}/MayRepair.ts`,
    find: "payment.answer === declined",
    replace: "false",
    seenBy: { file: differences, test: " s after its order was cancelled, and the gateway has captured it" }
  },
  {
    name: "takes-a-late-capture-for-the-orders",
    breaks: "a refund of a declined payment is never recorded",
    file: `${room}/MayRepair.ts`,
    find: " || (yield* wasDeclined(paymentId))",
    replace: "",
    seenBy: { file: differences, test: "a declined payment of a paid order was captured late" }
  },
  {
    name: "announces-while-money-goes-back",
    breaks: "a person is told that a cancelled order was paid",
    file: `${room}/MayRepair.ts`,
    find: "if (kept?.isGoingBack === true) {",
    replace: "if (kept === null) {",
    seenBy: { file: twoDamages, test: "on its way back" }
  },
  {
    name: "counts-an-event-twice",
    breaks: "a copy of an archived sale doubles the revenue of its day",
    file: `${room}/rules/EventRules.ts`,
    find: "AND other.event_id <> e.event_id)",
    replace: "AND false)",
    seenBy: { file: twoDamages, test: "the archive has a second event of a version" }
  },
  {
    name: "forgets-who-tells",
    breaks: "a person refunds rightful money, since its payment has lost its row",
    file: `${room}/GatewayWalk.ts`,
    find: "WHERE event_id > ${unknown.toSorted()[0]!}::uuid AND",
    replace: "WHERE false AND",
    seenBy: { file: differences, test: "the ledger has lost its entry, and the" }
  },
  {
    name: "gives-all-events-up",
    breaks: "an effect that is lost is never named, since an operator gave another event up",
    file: `${room}/SqlRule.ts`,
    find: " AND (d.event_type IS NULL OR d.event_type IN (${types}))",
    replace: "",
    seenBy: { file: differences, test: "an operator has given up another event" }
  },
  {
    name: "takes-up-any-refund",
    breaks: "a paying customer is refunded, for the rows of order and payment say so",
    file: `${room}/Books.ts`,
    find: 'yield* (phase === "refund" ? mayGiveBack : mayResolve)(orderId, id)',
    replace: "",
    seenBy: { file: twoDamages, test: "and its payment's row refunding" }
  },
  {
    name: "cancels-what-a-mail-calls-paid",
    breaks: "of an order whose sale all books but the mail have lost the money goes back",
    file: `${room}/MayRepair.ts`,
    find: '(isAnsweredPaid || all.has("OrderPaid"))',
    replace: "false",
    seenBy: { file: twoDamages, test: "archive and order say cancelled of a sale" }
  },
  {
    name: "refunds-what-was-refunded",
    breaks: "a refund is told a second time, for the order's row is the one before it",
    file: `${room}/GatewayWalk.ts`,
    find: "yield* mayRefund(OrderId.make(orderId), id)",
    replace: "",
    seenBy: { file: twoDamages, test: "of a refund archive, ledger and mail are lost" }
  },
  {
    name: "sends-for-an-event-that-is-none",
    breaks: "of a row with a version too many a person is sent to the topic for an event that nobody wrote",
    file: `${room}/MayRepair.ts`,
    find: "if (version !== undefined) {\n    return `${type} was told of it before, with",
    replace: "if (version === null) {\n    return `${type} was told of it before, with",
    seenBy: { file: twoDamages, test: "the version of a paid order's row is one too high" }
  },
  {
    name: "never-settles-what-was-too-much",
    breaks: "an order whose gateway has given the excess back waits for a person for ever",
    file: `${room}/GatewayRules.ts`,
    find: "if (isSettled) return undefined",
    replace: "",
    seenBy: { file: differences, test: "the gateway has captured too much, and has given that back" }
  },
  {
    name: "cancels-a-paid-order",
    breaks: "of a paid order whose sale is lost, and whose row says cancelled, two repairs give the money back",
    file: `${room}/Books.ts`,
    find: 'if (status === "cancelled") yield* mayCancel(id)',
    replace: 'if (status === "paid") yield* mayCancel(id)',
    seenBy: { file: twoDamages, test: "no repair gives its money back" }
  },
  {
    name: "gives-back-by-one-row",
    breaks: "the money of a paid order goes back because its row says cancelled",
    file: `${room}/MayRepair.ts`,
    find: 'if (all.status === "cancelled" && !isCancelledTold) {',
    replace: 'if (all.status === "paid" && !isCancelledTold) {',
    seenBy: { file: twoDamages, test: "the row says cancelled one version before: its money stays" }
  },
  {
    name: "asks-no-reservation",
    breaks: "an event that was delivered is told a second time, under a new id",
    file: `${room}/Told.ts`,
    find: "UNION SELECT 'OrderPlaced' FROM reserved\n        UNION SELECT ended FROM reserved,",
    replace: "UNION SELECT 'OrderPlaced' FROM reserved WHERE false UNION SELECT NULL FROM reserved,",
    seenBy: { file: twoDamages, test: "order was delivered, and archive, marks and cursors have lost it" }
  },
  {
    name: "asks-no-mail",
    breaks: "a customer gets a second receipt, and the day counts the sale twice",
    file: `${room}/Told.ts`,
    find: "SELECT type FROM mails\n        UNION",
    replace: "SELECT type FROM mails WHERE false UNION",
    seenBy: { file: twoDamages, test: "only the mail tells of a sale, and the order's row is the one before it" }
  },
  {
    name: "mails-under-a-new-key",
    breaks: "a customer gets a second receipt because the key of the first one's task was changed",
    file: `${room}/MayRepair.ts`,
    find: "if (mails.includes(eventType) || ",
    replace: "if (",
    seenBy: { file: twoDamages, test: "the key of a receipt's task is" }
  },
  {
    name: "sums-without-a-missing-event",
    breaks: "an event that all books have lost takes its amount off the revenue",
    file: `${room}/RevenueWalk.ts`,
    find: '  "event-missing",\n',
    replace: "",
    seenBy: {
      file: twoDamages,
      test: "order was delivered, and archive, marks, cursors and ledger have lost it"
    }
  },
  {
    name: "blames-the-row-of-a-lost-event",
    breaks: "a person is told that the order's row is wrong, where its archived event is lost",
    file: `${room}/MayRepair.ts`,
    find: "if (version < told.rowVersion && all.has(eventType))",
    replace: "if (version > told.rowVersion && all.has(eventType))",
    seenBy: { file: twoDamages, test: "order was delivered, and archive, marks and cursors have lost it" }
  },
  {
    name: "names-one-status-for-all",
    breaks: "a person sets a paid order back to pending, and its customer pays again",
    file: `${room}/MayRepair.ts`,
    find: 'types.includes("OrderPaid") ? "paid" : "pending"',
    replace: 'types.includes("OrderPaid") ? "pending" : "paid"',
    seenBy: { file: twoDamages, test: "the refusal names the status that its events tell" }
  },
  {
    name: "judges-the-mail-by-a-wrong-entry",
    breaks: "of a swapped entry the right mail is said to be wrong, and a person changes it",
    file: `${room}/rules/MailRules.ts`,
    find: "AND e.event_type <> wanted.event_type)",
    replace: "AND false)",
    seenBy: { file: differences, test: "an entry has its accounts the other way round" }
  },
  {
    name: "names-a-lost-event-for-ever",
    breaks: "an event that an operator has skipped, since it was lost, is named each night",
    file: `${room}/${events}`,
    find: ' AND NOT ${sql.literal(isPassedOver("p.consumer_name", "without"))}',
    replace: "",
    seenBy: { file: lostEvent, test: "the event of a declined payment is lost" }
  },
  {
    name: "doubts-an-order-for-a-lost-copy",
    breaks: "nothing of an order is repaired any more once the archive has lost one of its events",
    file: `${room}/SqlRule.ts`,
    find: "isManual(rule) && rule.isOfACopy !== true",
    replace: "isManual(rule)",
    seenBy: { file: differences, test: "the first event of an order was deleted from the archive" }
  },
  {
    name: "waits-for-no-parked-event",
    breaks: "an event that waits for an operator is appended a second time",
    file: `${room}/rules/EventRules.ts`,
    find: "aggregate_version FROM outbox_parked",
    replace: "aggregate_version - 99 FROM outbox_parked",
    seenBy: { file: underWay, test: "an event that waits behind" }
  },
  {
    name: "knows-no-decision",
    breaks: "an operator's discard is told as a difference, and undone by a repair",
    file: `${room}/SqlRule.ts`,
    find: "OR EXISTS (SELECT FROM inbox_dead_letters AS d WHERE d.consumer_name = '",
    replace: "OR EXISTS (SELECT FROM inbox_dead_letters AS d WHERE false AND d.consumer_name = '",
    seenBy: { file: underWay, test: "an effect that an operator has given up" }
  },
  {
    name: "misses-deleted-tasks",
    breaks: "every mail that is older than its task's retention is told as missing, and sent once more by a repair",
    file: `${room}/rules/MailRules.ts`,
    find: 'uuid_v7_time(event_id) > ${sql.literal(keptSince("outbox_tasks"))}',
    replace: "uuid_v7_time(event_id) > '-infinity'",
    seenBy: { file: underWay, test: "what the archive, the marks and the tasks have forgotten" }
  },
  {
    name: "agrees-without-a-gateway",
    breaks: "the alert ends because the gateway is away",
    file: `${room}/Reconciliation.ts`,
    find: "left: new Map(counts.map(",
    replace: "left: new Map(counts.slice(0, 0).map(",
    seenBy: { file: underWay, test: "without a gateway its rules count as before" }
  },
  {
    name: "repairs-what-is-gone",
    breaks: "of two repairs at once both act: an event is appended twice",
    file: `${room}/Repair.ts`,
    find: "if (!(yield* steps.isThere)) return gone",
    replace: "yield* steps.isThere",
    seenBy: { file: underWay, test: "of repairs at once" }
  },
  {
    name: "repairs-in-secret",
    breaks: "nobody can tell later who has changed the books",
    file: `${room}/Repair.ts`,
    find: "yield* OperatorAudit.record({",
    replace: "yield* Effect.succeed({",
    seenBy: { file: differences, test: "an entry was deleted from the ledger" }
  },
  {
    name: "repairs-at-night",
    breaks: "books are changed without an operator",
    file: `${room}/Nightly.ts`,
    find: "run({ actor: nightly, progress })",
    replace: 'run({ actor: nightly, progress, repair: { reason: "it is night" } })',
    seenBy: { file: "test/http/AdminReconciliation.test.ts", test: "a check, a repair without a reason" }
  },
  {
    name: "main-without-nights",
    breaks: "nobody compares the books unless somebody asks",
    file: "src/main.ts",
    find: `    Layer.provideMerge(where(["maintenance"], Layer.provide(Nightly.layer, cases))),\n`,
    replace: "",
    seenBy: { file: "test/e2e/Reconcile.test.ts", test: "at night a process" }
  },
  {
    name: "keeps-every-difference",
    breaks: "the memory of a run grows with the differences",
    file: `${room}/Reconciliation.ts`,
    find: "if (count < this.#limit) this.kept.push(one)",
    replace: "this.kept.push(one)",
    seenBy: { file: `${tests}/Many.test.ts`, test: "50,000 orders" }
  },
  {
    name: "looks-again-at-one-page",
    breaks: "of many differences those behind the first page are taken for gone",
    file: `${room}/SqlRule.ts`,
    find: "keys.slice(start, start + pageRows) }",
    replace: "keys.slice(0, pageRows) }",
    seenBy: { file: `${tests}/Many.test.ts`, test: "50,000 orders" }
  },
  {
    name: "charges-on-a-rows-word",
    breaks: "a payment's row without any request charges a customer",
    file: `${room}/Books.ts`,
    find: 'phase === "charge" && !(yield* idempotency.isKnown(id))',
    replace: 'phase === "charge" && false',
    seenBy: { file: differences, test: "a payment is charging, and no request" }
  },
  {
    name: "settles-a-refund-that-nobody-asked-for",
    breaks: "a paid order's money goes back because its payment's row says refunding",
    file: `${room}/Books.ts`,
    find: 'phase === "refund" && ordered !== "cancelled" && !wasDeclined',
    replace: "false",
    seenBy: { file: twoDamages, test: "one, and its refund begun" }
  },
  {
    name: "cancels-on-a-rows-word",
    breaks: "a customer loses an open order, since a hand has changed its status",
    file: `${room}/Books.ts`,
    find: 'if (locked.order.status === "cancelled") return yield*',
    replace: 'if (locked.order.status === "pending") return yield*',
    seenBy: { file: differences, test: "an order is cancelled by hand" }
  },
  {
    name: "revenue-of-the-future",
    breaks: "nobody looks at the revenue of days to come",
    file: `${room}/RevenueWalk.ts`,
    find: " OR revenue_daily.day > (clock_now() AT TIME ZONE 'UTC')::date + 1",
    replace: "",
    seenBy: { file: differences, test: "a day to come has revenue" }
  },
  {
    name: "lists-twenty-always",
    breaks: "of the charges of a lost database twenty are named, and the others by nothing",
    file: `${room}/Reconciliation.ts`,
    find: "items: listOf(listed) }",
    replace: "items: listOf(listedLimit) }",
    seenBy: { file: restored, test: "a result lists as many" }
  },
  {
    name: "repairs-behind-the-topic",
    breaks: "on a restored database a repair uses versions that the topic has for other events",
    file: `${room}/TopicHistory.ts`,
    find: "outcome.findings.length > 0",
    replace: "outcome.findings.length > 99",
    seenBy: { file: restored, test: "behind its topic a refund" }
  },
  {
    name: "repairs-unlooked",
    breaks: "while Kafka is away a repair writes on a database that may be behind it",
    file: `${room}/TopicHistory.ts`,
    find: "`nobody can tell now whether the database is behind its topic: ${outcome.why}`",
    replace: "undefined",
    seenBy: { file: restored, test: "behind its topic a refund" }
  },
  {
    name: "pays-what-is-paid",
    breaks: "of a row that was damaged OrderPaid is told a second time: revenue, ledger and mail have it twice",
    file: `${room}/MayRepair.ts`,
    find: 'OrderPaid: ["OrderPaid", ',
    replace: "OrderPaid: [",
    seenBy: { file: twoDamages, test: "the entry of a sale is lost, and its order's row says pending" }
  },
  {
    name: "tells-a-version-anew",
    breaks: "the topic has two events of one version",
    file: `${room}/MayRepair.ts`,
    find: "if (told.version > version) {",
    replace: "if (told.version < 0) {",
    seenBy: { file: twoDamages, test: "the sale of an order is queued, and its row is the one before it" }
  },
  {
    name: "believes-a-doubted-row",
    breaks: "goods, mail and events follow a payment's row that the gateway contradicts",
    file: `${room}/Doubts.ts`,
    find: "if (rules.length > 0) {",
    replace: "if (rules.length > 99) {",
    seenBy: { file: differences, test: "the row of a paid order's payment says refunded" }
  },
  {
    name: "doubts-without-the-gateway",
    breaks: "an order becomes paid by a capture that the gateway does not have",
    file: `${room}/GatewayWalk.ts`,
    find: ".filter((name) => manualRules.has(name))",
    replace: '.filter((name) => name === "")',
    seenBy: { file: differences, test: "the row of a payment that the gateway does not know says captured" }
  },
  {
    name: "sums-what-is-in-doubt",
    breaks: "a day's revenue is computed from events that were lost or damaged, and tells too little",
    file: `${room}/RevenueWalk.ts`,
    find: "  waitsFor: sources,\n",
    replace: "",
    seenBy: { file: differences, test: "the row of an archived event is gone, and its entry" }
  },
  {
    name: "mails-each-row",
    breaks: "a second row of the ledger about one sale sends a second receipt",
    file: `${room}/rules/MailRules.ts`,
    find: "GROUP BY id, event_type\n",
    replace: "GROUP BY id, event_type, event_id\n",
    seenBy: { file: differences, test: "a sale was booked twice, and no second receipt" }
  },
  {
    name: "doubts-what-it-mends",
    breaks: "a refund that the gateway tells of waits for itself, and is never recorded",
    file: `${room}/Doubts.ts`,
    find: '"gateway-refund-unrecorded": "refunded-without-refund"',
    replace: '"gateway-refund-unrecorded": "refunded-order-paid"',
    seenBy: { file: differences, test: "a refunded order's payment says captured" }
  },
  {
    name: "gives-back-what-is-due",
    breaks: "an honest customer's money goes back because one row was damaged",
    file: `${room}/ToldOfPayment.ts`,
    find: "if (isPaidTold) return",
    replace: "if (isPaidTold === null) return",
    seenBy: { file: twoDamages, test: "its order's row says pending, and its payment's row manual" }
  },
  {
    name: "sells-what-is-sold",
    breaks: "goods of a paid order are released because its row was damaged",
    file: `${room}/MayRepair.ts`,
    find: 'move === "reserve" ? hasEnded : !hasEnded',
    replace: 'move === "reserve" && hasEnded',
    seenBy: { file: twoDamages, test: "the row says cancelled one version before: its money stays" }
  },
  {
    name: "reconciliation-chases-new-orders",
    breaks: "a shop whose orders come faster than a page is compared never gets a result",
    file: `${room}/SqlRule.ts`,
    find: "WHERE ${key} > ${after}::uuid AND ${key} <= ${last}::uuid",
    replace: "WHERE ${key} > ${after}::uuid AND ${last}::uuid IS NOT NULL",
    seenBy: { file: underWay, test: "a run ends, however fast customers place orders" }
  },
  {
    name: "follows-a-moved-payment",
    breaks: "goods of an order that nobody has paid leave, because a payment's row names it",
    file: `${room}/ToldOfPayment.ts`,
    find: 'if (other !== undefined) {\n    return yield* cantMend(\n      "the payment was begun',
    replace: 'if (other === null) {\n    return yield* cantMend(\n      "the payment was begun',
    seenBy: { file: differences, test: "the row of a payment names another order, which is pending" }
  },
  {
    name: "takes-goods-twice",
    breaks: "the stock shows less than there is, for a lost reservation's goods were taken once more",
    file: `${room}/${inventory}`,
    find: "if (counted !== undefined) {",
    replace: "if (counted !== undefined && orderId === null) {",
    seenBy: { file: twoDamages, test: "a reservation of counted goods was deleted" }
  },
  {
    name: "believes-what-is-forgotten",
    breaks: "an old order that was paid is refunded, for nobody remembers its payment",
    file: `${room}/MayRepair.ts`,
    find: "known < version - 1",
    replace: "known < 0",
    seenBy: { file: twoDamages, test: "what was told of a paid order is forgotten" }
  },
  {
    name: "computes-revenue-without-a-doubted-order",
    breaks: "a day loses the sale of an order whose row says cancelled",
    file: `${room}/RevenueWalk.ts`,
    find: '  "captured-order-cancelled",\n',
    replace: "",
    seenBy: {
      file: twoDamages,
      test: "what was told of a paid order is forgotten, its ledger entry is lost, and its row says"
    }
  },
  {
    name: "believes-another-type",
    breaks: "OrderPaid is told twice, for the archive says that the payment was declined",
    file: `${room}/${events}`,
    find: " AND p.decline_reason = e.data ->> 'reason'",
    replace: "",
    seenBy: { file: twoDamages, test: "the type of an archived sale says declined" }
  },
  {
    name: "believes-another-turn",
    breaks: "the customer of a paid order gets the notice of a refund",
    file: `${room}/${events}`,
    find: "WHEN 'OrderRefunded' THEN ARRAY['OrderPaid']",
    replace: "WHEN 'OrderRefunded' THEN ARRAY['OrderPaid', 'OrderPlaced']",
    seenBy: { file: twoDamages, test: "the type of an archived sale says refunded" }
  },
  {
    name: "believes-another-id",
    breaks: "a sale is booked under an id that was never published, and its receipt is sent twice",
    file: `${room}/${events}`,
    find: "AND c.version >= e.aggregate_version) = cardinality",
    replace: "AND c.version >= e.aggregate_version) > cardinality",
    seenBy: { file: twoDamages, test: "the id of an archived sale was changed" }
  },
  {
    name: "refuses-a-moved-entry-without-words",
    breaks: "the operator reads a database's error, and not which row is wrong",
    file: `${room}/${billing}`,
    find: "if (booked !== undefined) {",
    replace: "if (booked !== undefined && orderId === null) {",
    seenBy: { file: twoDamages, test: "the entry of a sale was moved to another order" }
  }
]
