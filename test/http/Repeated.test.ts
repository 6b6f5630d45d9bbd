/** Requests that are repeated because their answer was lost: who repeats one with its key gets the first answer. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { PaymentOutcomes } from "../../src/application/PaymentOutcomes.ts"
import { PaymentId } from "../../src/domain/Ids.ts"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import { type Answer, newOrder, send, service } from "./Service.ts"

const post = (path: string, key?: string, body?: unknown) =>
  Effect.flatMap(BoundAddress, ({ url }) =>
    send(`${url}${path}`, {
      method: "POST",
      ...(body === undefined ? {} : { body }),
      ...(key === undefined ? {} : { headers: { "idempotency-key": key } })
    })
  )

const place = Effect.map(post("/orders", undefined, newOrder), ({ json }) => json.id as string)

const placeAndPay = Effect.gen(function* () {
  const id = yield* place
  assert.strictEqual((yield* post(`/orders/${id}/pay`, `pay-${id}`, { paymentMethod: "pm_ok" })).status, 200)
  return id
})

const statusOf = (id: string) =>
  Effect.gen(function* () {
    const { url } = yield* BoundAddress
    return (yield* send(`${url}/orders/${id}`)).json.status as string
  })

/** What a repeated request must get again. */
const essence = ({ headers, status, text }: Answer) => [status, headers.get("location"), text]

layer(service, { excludeTestServices: true })("repeated requests", (it) => {
  it.effect("a refund that is repeated with its key gets its first answer, also after the money is back", () =>
    Effect.gen(function* () {
      const id = yield* placeAndPay
      const first = yield* post(`/orders/${id}/refund`, "r-1")
      assert.deepStrictEqual([first.status, first.json.status], [202, "refunding"])
      assert.deepStrictEqual(essence(yield* post(`/orders/${id.toUpperCase()}/refund`, "r-1")), essence(first))
      const outcomes = yield* PaymentOutcomes
      const paymentId = PaymentId.make(first.headers.get("location")!.slice("/payments/".length))
      yield* outcomes.refunded(paymentId, { amount: {}, isOurs: true })
      assert.strictEqual(yield* statusOf(id), "refunded")
      assert.deepStrictEqual(essence(yield* post(`/orders/${id}/refund`, "r-1")), essence(first))
      // Another key, and no key, hear how things are.
      assert.strictEqual((yield* post(`/orders/${id}/refund`, "r-2")).status, 409)
      assert.strictEqual((yield* post(`/orders/${id}/refund`)).status, 409)
    })
  )

  it.effect(
    "a cancellation that is repeated with its key gets its first answer, also after its payment has ended",
    () =>
      Effect.gen(function* () {
        const id = yield* place
        const first = yield* post(`/orders/${id}/cancel`, "c-1")
        assert.deepStrictEqual(
          [first.status, first.json.status, first.headers.get("location")],
          [200, "cancelled", null]
        )
        assert.deepStrictEqual(essence(yield* post(`/orders/${id}/cancel`, "c-1")), essence(first))

        const other = yield* place
        const paying = yield* post(`/orders/${other}/pay`, "c-pay", { paymentMethod: "pm_flaky" })
        assert.strictEqual(paying.status, 202)
        const inFlight = yield* post(`/orders/${other}/cancel`, "c-2")
        assert.deepStrictEqual(
          [inFlight.status, inFlight.headers.get("location")],
          [202, paying.headers.get("location")]
        )
        yield* (yield* PaymentOutcomes).charged(PaymentId.make(paying.json.paymentId), {
          _tag: "Declined",
          reason: "no money"
        })
        assert.deepStrictEqual(essence(yield* post(`/orders/${other}/cancel`, "c-2")), essence(inFlight))
        assert.strictEqual((yield* post(`/orders/${other}/cancel`, "c-3")).status, 200)
      })
  )

  it.effect("twenty refunds at once with one key are one refund, and get one answer", () =>
    Effect.gen(function* () {
      const id = yield* placeAndPay
      const answers = yield* Effect.all(
        Array.from({ length: 20 }, () => post(`/orders/${id}/refund`, "r-20")),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(new Set(answers.map((answer) => JSON.stringify(essence(answer)))).size, 1)
      assert.strictEqual(answers[0]!.status, 202)
      const sql = yield* SqlClient.SqlClient
      assert.deepStrictEqual(
        yield* sql`SELECT count(*)::int4 AS n FROM idempotency_keys WHERE idempotency_key = 'r-20'`,
        [{ n: 1 }]
      )
    })
  )

  it.effect(
    "a refund or cancellation with a body is refused: it would be of the whole amount, whatever the body says",
    () =>
      Effect.gen(function* () {
        const id = yield* placeAndPay
        for (const path of ["refund", "cancel"]) {
          for (const key of [undefined, "k"]) {
            const answer = yield* post(`/orders/${id}/${path}`, key, { amountMinor: 1 })
            assert.deepStrictEqual([answer.status, answer.json.errors[0].in], [400, "body"], path)
          }
        }
        assert.strictEqual(yield* statusOf(id), "paid")
        assert.strictEqual((yield* post(`/orders/${id}/refund`, "k", {})).status, 202)
      })
  )

  it.effect("on another path or for another use case a key is another key", () =>
    Effect.gen(function* () {
      const [one, two] = [yield* placeAndPay, yield* placeAndPay]
      assert.strictEqual((yield* post(`/orders/${one}/refund`, "same")).status, 202)
      assert.strictEqual((yield* post(`/orders/${two}/refund`, "same")).status, 202)
      assert.strictEqual((yield* post(`/orders/${two}/cancel`, "same")).status, 409)
      assert.strictEqual((yield* post(`/orders/${yield* place}/cancel`, "same")).status, 200)
    })
  )

  it.effect("what was refused is not kept: the key is free for a later request", () =>
    Effect.gen(function* () {
      const id = yield* place
      assert.strictEqual((yield* post(`/orders/${id}/refund`, "early")).status, 409)
      assert.strictEqual((yield* post(`/orders/${id}/pay`, "early", { paymentMethod: "pm_ok" })).status, 200)
      assert.strictEqual((yield* post(`/orders/${id}/refund`, "early")).status, 202)
      const missing = "01890a5d-ac96-774b-bcce-b302099a8057"
      assert.strictEqual((yield* post(`/orders/${missing}/refund`, "early")).status, 404)
      for (const path of ["refund", "cancel"]) {
        const answer = yield* post(`/orders/${id}/${path}`, "")
        assert.deepStrictEqual([answer.status, answer.json.errors[0].pointer], [400, "/idempotency-key"])
      }
    })
  )

  it.effect("answers that ask to come again say when", () =>
    Effect.gen(function* () {
      const id = yield* place
      const unknown = yield* post(`/orders/${id}/pay`, "when-1", { paymentMethod: "pm_flaky" })
      assert.deepStrictEqual([unknown.status, unknown.headers.get("retry-after")], [202, "5"])
      assert.strictEqual((yield* post(`/orders/${id}/cancel`)).headers.get("retry-after"), "5")
      const refund = yield* post(`/orders/${yield* placeAndPay}/refund`)
      assert.deepStrictEqual([refund.status, refund.headers.get("retry-after")], [202, "1"])
      const report = yield* post("/reports", undefined, { from: "2026-01-01", to: "2026-01-02" })
      assert.deepStrictEqual([report.status, report.headers.get("retry-after")], [202, "1"])
    })
  )
})
