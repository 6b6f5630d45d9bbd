/** A service as a process: its link signs in once, and with ADMIN_TOKEN there is none. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { send } from "../http/Service.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

/** The address of the console that the process has printed. */
const consoleOf = ({ output }: ServiceProcess.ServiceProcess) => /"consoleUrl":"([^"]+)"/.exec(output())![1]!

it.live("the link of the start signs in once; ADMIN_TOKEN takes its place, and stands in no output", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.make()
    const env = {
      DATABASE_URL: Redacted.value(url),
      DATA_DIRECTORY: yield* TestDatabase.dataDirectory,
      PORT: "0",
      LOG_LEVEL: "Debug"
    }
    const signIn = (service: ServiceProcess.ServiceProcess, token: string) =>
      send(`${service.url}/admin/session`, { body: { token } })

    yield* Effect.gen(function* () {
      const service = yield* ServiceProcess.start({ env })
      const token = new URL(consoleOf(service)).searchParams.get("token")!
      assert.strictEqual((yield* send(`${service.url}/admin/session`)).status, 401)
      const answer = yield* signIn(service, token)
      assert.strictEqual(answer.status, 204)
      const cookie = answer.headers.getSetCookie()[0]!.split(";", 1)[0]!
      assert.deepStrictEqual((yield* send(`${service.url}/admin/session`, { headers: { cookie } })).json, {
        actor: "admin",
        canWrite: true
      })
      assert.strictEqual((yield* signIn(service, token)).status, 401)
      // The log has neither: the start's line has the link, once.
      assert.strictEqual(service.output().split(token).length, 2)
      assert.notInclude(service.output(), cookie.split("=")[1]!)
    }).pipe(Effect.scoped)

    const adminToken = "a-token-of-the-operators"
    const service = yield* ServiceProcess.start({ env: { ...env, ADMIN_TOKEN: adminToken } })
    assert.strictEqual(consoleOf(service), `${service.url}/console`)
    const headers = { authorization: `Bearer ${adminToken}` }
    assert.strictEqual((yield* send(`${service.url}/admin/session`, { headers })).status, 200)
    assert.strictEqual((yield* signIn(service, adminToken)).status, 204)
    assert.strictEqual((yield* signIn(service, `${adminToken}s`)).status, 401)
    assert.notInclude(service.output(), adminToken)
  }).pipe(Effect.scoped)
)
