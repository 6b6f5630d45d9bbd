/** `paid-once payments …` as an operator runs it: beside a running service, and the sandbox gateway as another company's server. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { GatewayServer } from "../../src/sandbox/GatewayServer.ts"
import { gateway, send } from "../http/Service.ts"
import { eventually } from "../support/Counters.ts"
import { commandOf, Directory, environmentWith } from "../support/OperatorCommand.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const environment = Effect.flatMap(GatewayServer, ({ url }) =>
  environmentWith({
    GATEWAY_URL: url,
    GATEWAY_TIMEOUT_MILLIS: "500",
    GATEWAY_WEBHOOK_SECRET: "a-secret-of-two-companies",
    PAYMENT_RECOVER_DELAYS: "1ms,1ms"
  })
)
const run = commandOf("payments", environment)

const behave = (behaviour: object) =>
  Effect.flatMap(GatewayServer, ({ url }) => send(`${url}/behaviour`, { method: "PUT", body: behaviour }))

const world = gateway.pipe(Layer.provideMerge(TestDatabase.layerPool), Layer.provideMerge(Directory.layer))

const unknown = "0192a000-0000-7000-8000-000000000000"

it.live(
  "a payment that nobody heard of, from the list to its settlement: the order is paid once, its event is sent, and the books agree",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const service = yield* ServiceProcess.start({ env: yield* environment })
      yield* behave({ mode: "timeout-after" })
      const { json: order } = yield* send(`${service.url}/orders`, {
        body: { customerId: "ada", currency: "EUR", lines: [{ sku: "book", quantity: 1, unitAmountMinor: 2_500 }] }
      })
      const paid = yield* send(`${service.url}/orders/${order.id}/pay`, {
        body: { paymentMethod: "pm_ok" },
        headers: { "idempotency-key": "k" }
      })
      assert.strictEqual(paid.status, 202)
      const id = paid.headers.get("location")!.split("/").at(-1)!
      yield* eventually(
        "the payment to wait for a person",
        Effect.map(send(`${service.url}/payments/${id}`), ({ json }) => json.status === "manual")
      )

      const list = yield* run("list")
      assert.strictEqual(list.code, 0, list.stderr)
      assert.match(list.stdout, new RegExp(`${id}  manual .* 25\\.00 EUR`))
      assert.match(list.stderr, /^paid-once: the database is test_\w+ at 127\.0\.0\.1:\d+\n$/)

      // The gateway is still silent.
      const silent = yield* run("check", id)
      assert.deepInclude(silent, { code: 1 })
      assert.include(silent.stdout, "The gateway does not tell enough to compare.")
      assert.include(silent.stderr, "the gateway is http://127.0.0.1:")
      const early = yield* run("settle", id, "--as", "declined", "--reason", "no idea")
      assert.strictEqual(early.code, 1)
      assert.include(early.stderr, "can't be settled now: the gateway does not tell")

      yield* behave({ mode: "normal" })
      const check = yield* run("check", id, "--json")
      assert.strictEqual(check.code, 1)
      assert.deepInclude(JSON.parse(check.stdout), { verdict: "differ", mayBecome: ["captured"] })

      // Mistakes in the arguments, each named.
      const mistakes = [
        [["settle", id], "--reason"],
        [["settle", id, "--reason", "x", "--as", "lost"], "captured"],
        [["settle", id, "--reason", "x", "--without-gateway"], "--without-gateway needs --as"],
        [["list", "--status", "lost"], "refunding"],
        [["list", "--since", "soon"], "30m, 2h or 1d"],
        [["show", "not-an-id"], "payment-id"]
      ] as const
      const answers = yield* Effect.forEach(mistakes, ([args]) => run(...args), { concurrency: 2 })
      for (const [index, { code, stderr, stdout }] of answers.entries()) {
        assert.strictEqual(code, 2, stderr)
        assert.include(stdout + stderr, mistakes[index]![1])
      }
      const nobody = yield* run("settle", unknown, "--reason", "why")
      assert.strictEqual(nobody.code, 1)
      assert.strictEqual(nobody.stderr.trim().split("\n").at(-1), `paid-once: there is no payment ${unknown}`)

      for (const [by, words] of [
        ["ann", `Payment ${id} is captured, and its order paid.\n`],
        ["ben", `Payment ${id} is captured already, and its order paid.\n`]
      ] as const) {
        const settled = yield* run("settle", id, "--reason", "it is in the ledger", "--by", by)
        assert.deepStrictEqual([settled.code, settled.stdout], [0, words])
      }
      assert.strictEqual((yield* run("check", id)).code, 0)
      assert.strictEqual((yield* run("list")).stdout, "None.\n")
      const page = yield* run("list", "--status", "captured", "--since", "1h", "--json")
      assert.deepStrictEqual(
        (JSON.parse(page.stdout) as { readonly items: ReadonlyArray<{ readonly id: string }> }).items.map(
          (one) => one.id
        ),
        [id]
      )
      const show = yield* run("show", id)
      for (const words of [
        "25.00 EUR, captured 25.00 EUR",
        "settle by ann: it is in the ledger",
        "OrderPaid, version 2"
      ]) {
        assert.include(show.stdout, words)
      }
      assert.notInclude(show.stdout, "ben")

      // The event reached the subscribers, once, and the client's key has its final answer.
      yield* eventually(
        "billing and revenue to have it",
        Effect.map(
          sql<{ readonly billed: string; readonly revenue: string }>`
            SELECT (SELECT coalesce(sum(amount_minor), 0) FROM billing_ledger)::text AS billed,
                   (SELECT coalesce(sum(amount_minor), 0) FROM revenue_daily)::text AS revenue`,
          ([row]) => row!.billed === "2500" && row!.revenue === "2500"
        )
      )
      const again = yield* send(`${service.url}/orders/${order.id}/pay`, {
        body: { paymentMethod: "pm_ok" },
        headers: { "idempotency-key": "k" }
      })
      assert.strictEqual(again.status, 200)
    }).pipe(Effect.scoped, Effect.provide(world)),
  // A score of commands run here, each in a process of its own.
  300_000
)
