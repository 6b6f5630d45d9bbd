import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { EmailAddress } from "../../src/application/mail/MailTransport.ts"
import { emailType } from "../../src/application/tasks/Email.ts"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { send, service } from "./Service.ts"

layer(service, { excludeTestServices: true })("reports", (it) => {
  it.effect("a report request is answered 202 with a location; the same days have the same location", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const first = yield* send(`${url}/reports`, { body: { from: "2026-01-01", to: "2026-03-31" } })
      assert.strictEqual(first.status, 202)
      const location = first.headers.get("location")
      assert.strictEqual(location, `/reports/${first.json.taskId}`)
      const again = yield* send(`${url}/reports`, { body: { to: "2026-03-31", from: "2026-01-01" } })
      assert.strictEqual(again.headers.get("location"), location)
      const other = yield* send(`${url}/reports`, { body: { from: "2026-01-01", to: "2026-03-30" } })
      assert.notStrictEqual(other.headers.get("location"), location)
      const found = yield* send(`${url}${location}`)
      assert.strictEqual(found.status, 200)
      assert.deepStrictEqual(found.json, {
        taskId: first.json.taskId,
        state: "pending",
        lastError: null,
        result: null
      })
    })
  )

  for (const [body, pointers] of [
    [{}, ["/from", "/to"]],
    [{ from: "2026-02-30", to: "yesterday" }, ["/from", "/to"]],
    [{ from: "2026-03-01T00:00:00Z", to: 20260301 }, ["/from", "/to"]],
    [{ from: "1999-12-31", to: "2100-01-01" }, ["/from", "/to"]],
    [{ from: "2026-03-02", to: "2026-03-01" }, ["/to"]],
    [{ from: "2025-01-01", to: "2026-01-02" }, ["/to"]],
    [{ from: "2026-01-01", to: "2026-01-02", currency: "EUR" }, ["/currency"]]
  ] as const) {
    it.effect(`${JSON.stringify(body)} is refused at ${pointers.join(" and ")}`, () =>
      Effect.gen(function* () {
        const { url } = yield* BoundAddress
        const { json, status } = yield* send(`${url}/reports`, { body })
        assert.strictEqual(status, 400)
        assert.deepStrictEqual(
          json.errors.map((error: { readonly in: string; readonly pointer: string }) => `${error.in} ${error.pointer}`),
          pointers.map((pointer) => `body ${pointer}`)
        )
      })
    )
  }

  it.effect("a year with its leap day is not too long", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const { status } = yield* send(`${url}/reports`, { body: { from: "2028-01-01", to: "2028-12-31" } })
      assert.strictEqual(status, 202)
    })
  )

  it.effect("an unknown id and another type of task are 404", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const tasks = yield* Tasks
      const { taskId } = yield* Transaction.run(
        tasks.enqueue(emailType, {
          kind: "receipt",
          to: EmailAddress.make("ada@customers.example"),
          subject: "s",
          text: "t"
        })
      )
      assert.strictEqual((yield* send(`${url}/reports/${taskId}`)).status, 404)
      assert.strictEqual((yield* send(`${url}/reports/01890a5d-ac96-774b-bcce-b302099a8057`)).status, 404)
      assert.strictEqual((yield* send(`${url}/reports/7`)).status, 400)
    })
  )
})
