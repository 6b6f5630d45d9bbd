/** The state machines in docs/payments.md, in the domain, and in the database's constraints are the same. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import { PgClient } from "@effect/sql-pg"
import { type Move, Payments } from "../../src/application/Payments.ts"
import type { PaymentId } from "../../src/domain/Ids.ts"
import { orderTransitions } from "../../src/domain/Order.ts"
import { PaymentStatus, paymentTransitions } from "../../src/domain/Payment.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { root } from "../support/Postgres.ts"
import { pay, place, test } from "./World.ts"

/** The arrows of a Mermaid state diagram under a heading of docs/payments.md, as `from → to`. */
const drawn = (heading: string): ReadonlyArray<string> => {
  const text = readFileSync(Path.join(root, "docs/payments.md"), "utf8")
  const section = text.slice(text.indexOf(`### ${heading}`))
  const diagram = /```mermaid\n([\s\S]*?)```/.exec(section)?.[1] ?? ""
  return [...diagram.matchAll(/^\s*(\w+) --> (\w+)/gm)].map(([, from, to]) => `${from} → ${to}`).toSorted()
}

const arrowsOf = (transitions: Readonly<Record<string, ReadonlyArray<string>>>): ReadonlyArray<string> =>
  Object.entries(transitions)
    .flatMap(([from, targets]) => targets.map((to) => `${from} → ${to}`))
    .toSorted()

it("the order's diagram is the domain's state machine", () => {
  assert.deepStrictEqual(drawn("An order"), arrowsOf(orderTransitions))
})

it("the payment's diagram is the domain's state machine", () => {
  assert.deepStrictEqual(drawn("A payment"), arrowsOf(paymentTransitions))
})

/** The columns of a payment in each state. A `manual` payment waits for its charge, its refund, or a word about what was done at the gateway. */
const rows: ReadonlyArray<{ readonly name: string; readonly status: PaymentStatus; readonly set: string }> = [
  { name: "charging", status: "charging", set: "captured_minor = 0, refund_begun_at = NULL" },
  { name: "captured", status: "captured", set: "captured_minor = amount_minor, refund_begun_at = NULL" },
  { name: "declined", status: "declined", set: "captured_minor = 0, refund_begun_at = NULL" },
  { name: "manual charge", status: "manual", set: "captured_minor = 0, refund_begun_at = NULL" },
  { name: "manual refund", status: "manual", set: "captured_minor = amount_minor, refund_begun_at = clock_now()" },
  { name: "manual dispute", status: "manual", set: "captured_minor = amount_minor, refund_begun_at = NULL" },
  { name: "refunding", status: "refunding", set: "captured_minor = amount_minor, refund_begun_at = clock_now()" },
  { name: "refunded", status: "refunded", set: "captured_minor = amount_minor, refund_begun_at = clock_now()" }
]

/** Each arrow of `manual` belongs to one of its phases. */
const isAllowed = (from: (typeof rows)[number], to: PaymentStatus) =>
  paymentTransitions[from.status].includes(to) &&
  (from.name !== "manual charge" || to !== "refunded") &&
  (from.name !== "manual refund" || to === "refunded") &&
  (from.name !== "manual dispute" || to === "refunded" || to === "captured")

test("a payment moves along the arrows, and every other move is refused by the guarded update", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const payments = yield* Payments
    const { paymentId } = yield* pay(yield* place, "k")
    const run = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
      Effect.flatMap(PgClient.PgClient, (client) =>
        Effect.provideService(Transaction.run(effect), PgClient.PgClient, client)
      )
    for (const from of rows) {
      for (const to of PaymentStatus.literals) {
        if (to === "charging") continue
        yield* sql.unsafe(
          `UPDATE payments SET status = '${from.status}', ${from.set},
             refunded_minor = ${from.status === "refunded" ? "amount_minor" : "0"},
             decline_reason = ${from.status === "declined" ? "'no'" : "NULL"}`
        )
        const move: Move = to === "declined" ? { to, reason: "no" } : { to }
        const exit = yield* Effect.exit(
          run(Effect.flatMap(payments.lock(paymentId), (payment) => payments.move(payment, move)))
        )
        assert.strictEqual(exit._tag === "Success", isAllowed(from, to), `${from.name} → ${to}`)
      }
    }
  }))

test("SQL written by hand can't store a payment or an order in an impossible state", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { paymentId }: { readonly paymentId: PaymentId } = yield* pay(yield* place, "k")
    for (const set of [
      "status = 'lost'",
      "status = 'charging'",
      "status = 'declined'",
      "status = 'refunded'",
      "status = 'refunding'",
      "captured_minor = 0",
      "captured_minor = 1",
      "refunded_minor = 1",
      "refunded_minor = amount_minor",
      "refund_begun_at = clock_now()",
      "decline_reason = 'no'"
    ]) {
      const exit = yield* Effect.exit(sql.unsafe(`UPDATE payments SET ${set} WHERE id = '${paymentId}'`))
      assert.strictEqual(exit._tag, "Failure", set)
    }
    assert.strictEqual((yield* Effect.exit(sql`UPDATE orders SET status = 'paying'`))._tag, "Failure")
  }))

test("an order has one open payment, whatever asks for another", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { paymentId } = yield* pay(yield* place, "k")
    for (const status of ["charging", "captured", "manual", "refunding"]) {
      const exit = yield* Effect.exit(sql`
        INSERT INTO payments (id, order_id, status, payment_method, amount_minor, captured_minor, refund_begun_at, currency, leased_until, created_at, updated_at)
        SELECT gen_random_uuid(), order_id, ${status}, payment_method, amount_minor,
               CASE WHEN ${status} IN ('captured', 'refunding') THEN amount_minor ELSE 0 END,
               CASE WHEN ${status} = 'refunding' THEN clock_now() END, currency, leased_until, created_at, updated_at
        FROM payments WHERE id = ${paymentId}::uuid`)
      assert.match(String(exit), /UniqueViolation|unique|payments_one_open/i, status)
    }
  }))
