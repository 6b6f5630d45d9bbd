/** The audit, the settings and the sandbox gateway through /admin. */
import { assert, it, layer } from "@effect/vitest"
import { ConfigProvider, Effect, Layer } from "effect"
import * as Config from "../../src/Config.ts"
import { SettingsInForce } from "../../src/http/admin/SettingsInForce.ts"
import * as Admin from "./Admin.ts"

const { ask, hostile, pagesOf } = Admin
const secret = "s3cret-canary-0123456789"

/** Every variable that holds a secret, with one that would be recognised. */
const secrets: Readonly<Record<string, string>> = {
  DATABASE_URL: `postgres://service:${secret}@localhost/paid`,
  DATABASE_OWNER_URL: `postgres://owner:${secret}@localhost/paid`,
  KAFKA_SASL_PASSWORD: secret,
  API_KEYS: `shop:customer:${"5ec7e7".repeat(11).slice(0, 64)}`,
  ADMIN_TOKEN: secret,
  GATEWAY_URL: `https://key:${secret}@gateway.example`,
  GATEWAY_WEBHOOK_SECRET: secret,
  GATEWAY_WEBHOOK_URL: `https://key:${secret}@shop.example`,
  SMTP_URL: `smtp://user:${secret}@mail.example:25`,
  OTEL_EXPORTER_OTLP_ENDPOINT: `https://key:${secret}@traces.example`,
  OTEL_EXPORTER_OTLP_HEADERS: `authorization=${secret}`
}

const environment = Layer.succeed(
  ConfigProvider.ConfigProvider,
  ConfigProvider.fromUnknown({ ...secrets, OUTBOX_BATCH_SIZE: "77", KAFKA_PREFIX: hostile })
)
const service = Admin.service.pipe(
  Layer.provide(Layer.provide(Layer.effect(SettingsInForce, Config.inForce), environment))
)

it.effect("every variable whose value is a secret is tested here", () =>
  Effect.map(Config.inForce, (settings) =>
    assert.sameMembers(
      settings.filter(({ isSecret }) => isSecret).map(({ variable }) => variable),
      Object.keys(secrets)
    )
  )
)

layer(service, { excludeTestServices: true })((it) => {
  it.effect("the settings in force are shown, and no secret among them", () =>
    Effect.gen(function* () {
      const { json, text } = yield* ask("/settings")
      const of = (name: string) => json.items.find(({ variable }: { readonly variable: string }) => variable === name)
      assert.sameMembers(
        json.items.map(({ variable }: { readonly variable: string }) => variable),
        [...Config.variableNames]
      )
      for (const needle of [secret, "5ec7e7", encodeURIComponent(secret), btoa(secret)]) assert.notInclude(text, needle)
      for (const variable of Object.keys(secrets)) {
        const { description, ...told } = of(variable)
        assert.deepStrictEqual(told, { variable, value: null, isDefault: false, isSecret: true })
        assert.include(description, "Secret.")
      }
      assert.deepInclude(of("OUTBOX_BATCH_SIZE"), {
        value: "77",
        isDefault: false,
        description: "Large enough that the round trip is small beside the batch. Allowed: 1 … 10000."
      })
      assert.deepInclude(of("OUTBOX_POLL_MILLIS"), { value: "1000", isDefault: true })
      assert.deepInclude(of("OUTBOX_NOTIFY"), { value: "on", isDefault: true })
      assert.deepInclude(of("GATEWAY_KEY_RETENTION"), { value: "1d", isDefault: true })
      assert.deepInclude(of("TASK_RETRY_DELAYS"), { value: "1m,5m,15m,30m,1h,2h,4h,8h,12h,1d" })
      assert.deepInclude(of("KAFKA_BROKERS"), { value: null, isDefault: true })
    })
  )

  it.effect("the sandbox gateway fails on command, and behaves again; repeating a command changes nothing", () =>
    Effect.gen(function* () {
      const tell = (body: object) => ask("/gateway/behaviour", body, { method: "PUT" })
      assert.deepInclude((yield* ask("/gateway/behaviour")).json, { mode: "normal" })
      const down = { mode: "down", times: 3, reason: "a drill" }
      assert.deepInclude((yield* tell(down)).json, { mode: "down", timesLeft: 3, changed: true })
      assert.deepInclude((yield* tell(down)).json, { mode: "down", changed: false })
      assert.deepInclude((yield* ask("/gateway/behaviour")).json, { mode: "down", timesLeft: 3 })
      assert.deepInclude((yield* tell({ reason: "it is over" })).json, { mode: "normal", changed: true })
      assert.deepStrictEqual(yield* Admin.audited("behaviour"), [
        "set behaviour by admin: it is over",
        "set behaviour by admin: a drill"
      ])
      assert.deepStrictEqual(
        (yield* tell({ mode: "asleep", times: 0 })).json.errors
          .map(({ pointer }: { readonly pointer: string }) => pointer)
          .toSorted(),
        ["/mode", "/reason", "/times"]
      )
    })
  )

  it.effect("the audit is listed in pages, the newest first, by who, what and about which thing", () =>
    Effect.gen(function* () {
      for (const [index, name] of ["ada", "bob", "ada", hostile.slice(0, 20)].entries()) {
        const action = index % 2 === 0 ? "pause" : "resume"
        yield* ask(
          `/topics/orders/${action}`,
          { reason: hostile },
          { headers: { "x-operator": encodeURIComponent(name) } }
        )
      }
      const all = yield* pagesOf("/audit?subject=topic&limit=3")
      assert.strictEqual(all.pages, 2)
      assert.deepStrictEqual(
        all.items.map(({ action, actor }) => `${String(actor)} ${String(action)}`),
        [`admin/${hostile.slice(0, 20)} resume`, "admin/ada pause", "admin/bob resume", "admin/ada pause"]
      )
      assert.isTrue(all.items.every((entry) => entry["reason"] === hostile))
      assert.deepInclude(all.items.at(-1)!["after"] as object, { status: "paused", reason: hostile })
      const unknown = yield* ask("/audit?subject=nope")
      assert.strictEqual(unknown.status, 400)
      assert.include(unknown.json.errors[0].message, '"outbox event"')
      const ofAda = yield* ask("/audit?actor=admin%2Fada&action=pause&subjectId=orders&sinceSeconds=600")
      assert.strictEqual(ofAda.json.items.length, 2)
      assert.deepStrictEqual(
        (yield* ask("/audit?cursor=-1&limit=0&who=x")).json.errors
          .map(({ pointer }: { readonly pointer: string }) => pointer)
          .toSorted(),
        ["/cursor", "/limit", "/who"]
      )
    })
  )
})
