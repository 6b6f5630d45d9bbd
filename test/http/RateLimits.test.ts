/** The buckets behind a rate limit: how they fill, whom they stand for, and how many there are. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Exit, Layer } from "effect"
import { RateLimiter } from "effect/persistence"
import { TestClock } from "effect/testing"
import { networkOf, RateLimits, RateLimitSettings } from "../../src/http/access/RateLimits.ts"

const settings = Layer.succeed(RateLimitSettings, { rateLimit: { limit: 60, windowMillis: 60_000 } })

/** How many of `count` requests are served. */
const served = (count: number, ask: Effect.Effect<void, unknown>) =>
  Effect.map(
    Effect.forEach(Array.from({ length: count }), () => Effect.exit(ask)),
    (exits) => exits.filter(Exit.isSuccess).length
  )

it.effect("a bucket is full at first, and refills by the second; an answer says when to ask again", () =>
  Effect.gen(function* () {
    const { key } = yield* RateLimits
    assert.strictEqual(yield* served(100, key("shop")), 60)
    const refused = yield* Effect.flip(key("shop"))
    assert.deepStrictEqual([refused.status, refused.headers?.["retry-after"]], [429, "1"])
    assert.strictEqual(yield* served(100, key("other")), 60)
    yield* TestClock.adjust("10 seconds")
    assert.strictEqual(yield* served(100, key("shop")), 10)
    yield* TestClock.adjust("1 hour")
    assert.strictEqual(yield* served(100, key("shop")), 60)
  }).pipe(Effect.provide(Layer.provide(RateLimits.layer, settings)))
)

it.effect("a wall clock that is set back leaves nobody without requests", () =>
  Effect.gen(function* () {
    const { key } = yield* RateLimits
    yield* served(60, key("shop"))
    yield* TestClock.adjust("10 seconds")
    const clock = yield* Clock.Clock
    const setBack = Object.create(clock, { currentTimeMillisUnsafe: { value: () => -86_400_000 } }) as Clock.Clock
    assert.strictEqual(yield* Effect.provideService(served(60, key("shop")), Clock.Clock, setBack), 10)
  }).pipe(Effect.provide(Layer.provide(RateLimits.layer, settings)))
)

it.effect("a million addresses take no more memory than some thousand, and a network counts as one", () =>
  Effect.gen(function* () {
    const buckets = new Set<string>()
    const store = Layer.effect(
      RateLimiter.RateLimiterStore,
      Effect.map(RateLimiter.RateLimiterStore, (memory) =>
        RateLimiter.RateLimiterStore.of({
          ...memory,
          tokenBucket: (options) => {
            buckets.add(options.key)
            return memory.tokenBucket(options)
          }
        })
      )
    ).pipe(Layer.provide(RateLimiter.layerStoreMemory))
    const { address } = yield* Effect.provide(
      RateLimits,
      RateLimits.layerNoDeps.pipe(Layer.provide(store), Layer.provide(settings))
    )
    // Fewer than a million, so that it takes a second: with a bucket for each the count would be theirs.
    yield* Effect.forEach(Array.from({ length: 20_000 }), (_, n) =>
      Effect.ignore(address(`2001:db8:${(n >> 8).toString(16)}:${(n & 255).toString(16)}::1`))
    )
    assert.isAtMost(buckets.size, 16_384)
    assert.isAbove(buckets.size, 8_192)
    buckets.clear()
    yield* Effect.forEach(Array.from({ length: 100 }), (_, n) => Effect.ignore(address(`2001:db8::${n.toString(16)}`)))
    assert.strictEqual(buckets.size, 1)
  })
)

it("an IPv6 address stands for its /64, and an IPv4 address for itself", () => {
  for (const [address, network] of [
    ["10.0.0.1", "10.0.0.1"],
    ["::ffff:10.0.0.1", "10.0.0.1"],
    ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
    ["2001:db8::5", "2001:db8:0:0::/64"],
    ["fe80::1%eth0", "fe80:0:0:0::/64"],
    ["::1", "0:0:0:0::/64"],
    ["1::", "1:0:0:0::/64"]
  ] as const) {
    assert.strictEqual(networkOf(address), network)
  }
})
