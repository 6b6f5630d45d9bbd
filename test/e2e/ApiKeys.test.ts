/** A service that other machines can reach, as a process: it starts with keys alone, and the ones that the command draws open it. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { execFile } from "node:child_process"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { newOrder, send } from "../http/Service.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"

/** Runs `paid-once api-key` with these arguments. */
const draw = (...args: ReadonlyArray<string>) =>
  Effect.callback<{ readonly code: unknown; readonly stdout: string; readonly stderr: string }>((resume) => {
    const child = execFile(
      process.execPath,
      [Path.join(root, "src/paid-once.js"), "api-key", ...args],
      { env: { PATH: process.env["PATH"] }, timeout: 50_000 },
      (error, stdout, stderr) => resume(Effect.succeed({ code: error === null ? 0 : error.code, stdout, stderr }))
    )
    return Effect.sync(() => void child.kill("SIGKILL"))
  })

it.live("the key that api-key draws is admitted by its entry, and by nothing else", () =>
  Effect.gen(function* () {
    const shown = yield* draw("shop", "--scope", "customer")
    assert.strictEqual(shown.code, 0, shown.stderr)
    const shop = /^ {2}(paid_once_\S{43})$/m.exec(shown.stdout)![1]!
    const entry = /^ {2}(shop:customer:[0-9a-f]{64})$/m.exec(shown.stdout)![1]!
    const desk = JSON.parse((yield* draw("desk", "--scope", "operator", "--json")).stdout) as Record<string, string>
    for (const args of [
      ["a b", "--scope", "customer"],
      ["shop", "--scope", "root"],
      ["anonymous", "--scope", "customer"],
      ["shop"]
    ]) {
      assert.strictEqual((yield* draw(...args)).code, 2, args.join(" "))
    }

    const { url } = yield* TestDatabase.make()
    const env = {
      DATABASE_URL: Redacted.value(url),
      DATA_DIRECTORY: yield* TestDatabase.dataDirectory,
      HOST: "0.0.0.0",
      PORT: "0",
      LOG_LEVEL: "Warn"
    }
    const refused = yield* Effect.flip(ServiceProcess.start({ env }))
    assert.match(refused.output, /^paid-once: API_KEYS must be set where HOST is 0\.0\.0\.0[^\n]*api-key[^\n]*\n$/)

    const service = yield* ServiceProcess.start({ env: { ...env, API_KEYS: `${entry},${desk["entry"]}` } })
    const place = (key: string | undefined) =>
      send(`${service.url}/orders`, {
        body: newOrder,
        headers: key === undefined ? {} : { authorization: `Bearer ${key}` }
      })
    assert.strictEqual((yield* place(undefined)).status, 401)
    assert.strictEqual((yield* place(entry)).status, 401)
    assert.strictEqual((yield* place(shop)).status, 201)
    const metrics = (key: string) => send(`${service.url}/metrics`, { headers: { authorization: `Bearer ${key}` } })
    assert.strictEqual((yield* metrics(shop)).status, 403)
    assert.strictEqual((yield* metrics(desk["key"]!)).status, 200)
    // The sandbox's signed report reaches the service without a key.
    const order = (yield* place(shop)).json.id as string
    const paid = yield* send(`${service.url}/orders/${order}/pay`, {
      body: { paymentMethod: "pm_ok" },
      headers: { authorization: `Bearer ${shop}`, "idempotency-key": "k" }
    })
    assert.strictEqual(paid.status, 200)
    assert.notInclude(service.output(), shop)
  }).pipe(Effect.scoped)
)
