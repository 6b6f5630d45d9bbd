/** The configuration of a service that other machines can reach: its keys, its rates and its names. */
import { assert, it } from "@effect/vitest"
import { ConfigProvider, Effect, Layer, Redacted } from "effect"
import { RateLimitSettings } from "../../src/http/access/RateLimits.ts"
import * as Config from "../../src/Config.ts"
import * as ApiKeys from "../../src/http/access/ApiKeys.ts"
import { settings } from "../../src/Settings.ts"

const load = (variables: Readonly<Record<string, string>>) =>
  Effect.provide(Config.load, ConfigProvider.layer(ConfigProvider.fromUnknown(variables)))

const keys = `${ApiKeys.draw("shop", "customer").entry},${ApiKeys.draw("desk", "operator").entry}`

/** The rate limit that a service with these variables has, as requests and seconds. */
const limitOf = (variables: Readonly<Record<string, string>>) =>
  Effect.gen(function* () {
    const { rateLimit } = yield* Effect.provide(
      RateLimitSettings,
      Layer.fresh(settings(yield* load({ API_KEYS: keys, ...variables })))
    )
    return rateLimit && [rateLimit.limit, rateLimit.windowMillis / 1_000]
  })

it.effect("a HOST that other machines can reach needs API_KEYS, and the refusal names the command that draws one", () =>
  Effect.gen(function* () {
    for (const HOST of ["0.0.0.0", "::", "192.168.1.5", "shop.example", "localhost.example", "1127.0.0.1"]) {
      const { message } = yield* Effect.flip(load({ HOST }))
      assert.include(message, `API_KEYS must be set where HOST is ${HOST}`)
      assert.include(message, "paid-once -- api-key NAME --scope operator")
      assert.notInclude(message, "\n")
      assert.strictEqual((yield* load({ HOST, API_KEYS: keys })).apiKeys?.length, 2)
    }
    for (const HOST of ["", "127.0.0.1", "127.1.2.3", "localhost", "LocalHost", "::1"]) {
      assert.isUndefined((yield* load({ HOST })).apiKeys, HOST)
    }
  })
)

it.effect("nobody is limited on loopback, and everybody elsewhere, unless RATE_LIMIT says otherwise", () =>
  Effect.gen(function* () {
    assert.isUndefined(yield* limitOf({}))
    assert.deepStrictEqual(yield* limitOf({ HOST: "0.0.0.0" }), [600, 60])
    assert.isUndefined(yield* limitOf({ HOST: "0.0.0.0", RATE_LIMIT: "off" }))
    assert.deepStrictEqual(yield* limitOf({ RATE_LIMIT: "5/1h" }), [5, 3_600])
    for (const RATE_LIMIT of ["600", "0/1m", "1/0s", "x/1m", "1/1m/1", "-1/1m", "1000001/1m", "on"]) {
      assert.match((yield* Effect.flip(load({ RATE_LIMIT }))).message, /^RATE_LIMIT: ".*" is not off, or a number of/)
    }
  })
)

it.effect("PUBLIC_HOSTS is a list of hosts, with or without a port", () =>
  Effect.gen(function* () {
    assert.deepStrictEqual(
      (yield* load({ PUBLIC_HOSTS: "Shop.example, admin.example:8443,[FD00::0:1]" })).publicHosts,
      [
        { name: "shop.example", port: undefined },
        { name: "admin.example", port: "8443" },
        { name: "[fd00::1]", port: undefined }
      ]
    )
    for (const PUBLIC_HOSTS of ["https://shop.example", "*.example", "a b", "a,,b", "a@b", "a/b", "[::1"]) {
      assert.match((yield* Effect.flip(load({ PUBLIC_HOSTS }))).message, /^PUBLIC_HOSTS: /)
    }
  })
)

it.effect("ADMIN_TOKEN has 16 to 200 characters that a header carries, and a refusal does not show it", () =>
  Effect.gen(function* () {
    assert.strictEqual((yield* load({})).adminToken, undefined)
    assert.strictEqual(Redacted.value((yield* load({ ADMIN_TOKEN: "x".repeat(16) })).adminToken!), "x".repeat(16))
    for (const ADMIN_TOKEN of [
      "x".repeat(15),
      "x".repeat(201),
      "sixteen characters",
      "sixteen-chäracters",
      "a\tb".repeat(8)
    ]) {
      const { message } = yield* Effect.flip(load({ ADMIN_TOKEN }))
      assert.match(message, /^ADMIN_TOKEN: the value is not 16 to 200 ASCII characters without spaces; `openssl rand/)
      assert.notInclude(message, ADMIN_TOKEN)
    }
  })
)
