/** `paid-once doctor` beside a bare start: an embedded Postgres, the embedded broker, the sandbox. A well system has no finding. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import type { CheckReport } from "../../src/operations/doctor/Check.ts"
import { newOrder, send, sendElsewhere } from "../http/Service.ts"
import { commandOf, Directory } from "../support/OperatorCommand.ts"

const token = "the-operator-of-this-test"

const environment = Effect.map(Directory, ({ path }) => ({
  DATA_DIRECTORY: path,
  PORT: "0",
  LOG_LEVEL: "Error",
  ADMIN_TOKEN: token
}))
const run = commandOf("doctor", environment)

it.live(
  "a well system has no finding, and a stopped one is told what is missing, in words, as JSON, and as exit statuses",
  () =>
    Effect.gen(function* () {
      const well = yield* Effect.scoped(
        Effect.gen(function* () {
          const service = yield* ServiceProcess.start({ env: yield* environment })
          const { json: order } = yield* send(`${service.url}/orders`, { body: newOrder })
          yield* send(`${service.url}/orders/${order.id}/pay`, {
            body: { paymentMethod: "pm_ok" },
            headers: { "idempotency-key": "k" }
          })
          const own = yield* sendElsewhere(`${service.url}/admin/doctor`, {
            headers: { authorization: `Bearer ${token}` }
          })
          assert.strictEqual(own.status, 200, own.text)
          assert.strictEqual(own.json.findings, 0, own.text)
          return yield* run("--url", service.url!)
        })
      )
      assert.strictEqual(well.code, 0, well.stdout + well.stderr)
      assert.match(well.stdout, /^OUTCOME +PART +CHECK +WHAT IT SAW\n/)
      assert.match(well.stdout, /\nok +tasks +claim-plan +the claim of tasks uses outbox_tasks_due/)
      // Without a gateway, a mail server: neither silently well.
      assert.match(well.stdout, /\nnot checked +gateway +gateway-time +without GATEWAY_URL/)
      assert.match(well.stdout, /\n\n40 checks, 0 findings, 2 not checked\.\n$/)

      const stopped = yield* run()
      assert.strictEqual(stopped.code, 1)
      assert.match(
        stopped.stdout,
        /\nlanes-move: no dispatcher runs: events are taken, and none is published\.\n {2}Start a process with the role dispatcher\.\n {2}\$ PORT=0 npm run paid-once -- serve --roles dispatcher\n/
      )
      const { checks, findings } = JSON.parse((yield* run("--json")).stdout)
      assert.isAbove(findings, 0)
      const metrics = checks.find(({ name }: CheckReport) => name === "metrics")
      assert.deepInclude(metrics, {
        outcome: "not checked",
        told: "the address of a running process is not known: name one with --url"
      })
    }).pipe(Effect.scoped, Effect.provide(Layer.fresh(Directory.layer)))
)
