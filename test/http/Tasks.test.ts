import { assert, layer } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { BoundAddress } from "../../src/http/HttpServer.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { send, service } from "./Service.ts"

const type = { name: "note", payload: Schema.Struct({ secret: Schema.String }), concurrency: 1, timeoutMillis: 1_000 }

layer(service, { excludeTestServices: true })("GET /tasks/{id}", (it) => {
  it.effect("shows a task's progress, and not its payload", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const tasks = yield* Tasks
      const { taskId } = yield* Transaction.run(tasks.enqueue(type, { secret: "hush" }, { idempotencyKey: "hush" }))
      const answer = yield* send(`${url}/tasks/${taskId.toUpperCase()}`)
      assert.strictEqual(answer.status, 200)
      assert.deepInclude(answer.json, {
        taskId,
        type: "note",
        state: "pending",
        attempts: 0,
        lastError: null,
        history: []
      })
      assert.isNotNaN(Date.parse(answer.json.executeAt))
      assert.notInclude(answer.text, "hush")
    })
  )

  it.effect("an unknown task is a 404, a malformed id a 400", () =>
    Effect.gen(function* () {
      const { url } = yield* BoundAddress
      const unknown = yield* send(`${url}/tasks/01890a5d-ac96-774b-bcce-b302099a8057`)
      assert.strictEqual(unknown.status, 404)
      assert.include(unknown.json.detail, "there is no task 01890a5d")
      assert.strictEqual((yield* send(`${url}/tasks/1`)).status, 400)
    })
  )
})
