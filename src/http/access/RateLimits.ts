/**
 * How often a caller may ask: a bucket of tokens for each API key, and one for each address that sends no valid key.
 *
 * The buckets are Effect's, in this process. Its store forgets no bucket. Therefore addresses share a fixed number of them, by a hash
 * that nobody outside can compute. An attacker with a million addresses uses up no memory, gets no fresh buckets, and can't choose whose
 * bucket he shares. There is no trust in `X-Forwarded-For`, which any client can write: behind a proxy the proxy's address counts.
 */
import { Clock, Context, Duration, Effect, Layer } from "effect"
import { RateLimiter } from "effect/persistence"
import { createHmac, randomBytes } from "node:crypto"
import { isIPv6 } from "node:net"
import * as Monotonic from "../../platform/Monotonic.ts"
import { Problem } from "../Problems.ts"

/** `limit` requests at once, and as many in each window from then on. */
export interface RateLimit {
  readonly limit: number
  readonly windowMillis: number
}

/**
 * Ten requests a second: a shop with a hundred thousand orders a day sends three or four. The service answers a hundred times that, so no
 * caller takes it from the others.
 */
export const defaultRateLimit: RateLimit = { limit: 600, windowMillis: 60_000 }

/** The limit of each caller; undefined for none. */
export const RateLimitSettings = Context.Reference<{ readonly rateLimit: RateLimit | undefined }>(
  "paid-once/http/RateLimitSettings",
  { defaultValue: () => ({ rateLimit: undefined }) }
)

/** Some two megabytes of buckets. Two addresses share one by chance in sixteen thousand cases. */
const addressBuckets = 16_384

/** An IPv6 address's network: a household or a server has a /64, and as many addresses as it likes. */
export const networkOf = (address: string): string => {
  const plain = address.replace(/^::ffff:(?=\d+\.)/, "").replace(/%.*$/, "")
  if (!isIPv6(plain)) return plain
  const [left = "", right] = plain.split("::")
  const before = left === "" ? [] : left.split(":")
  const after = right === undefined || right === "" ? [] : right.split(":")
  const groups = [...before, ...Array.from({ length: 8 - before.length - after.length }, () => "0"), ...after]
  return `${groups.slice(0, 4).join(":")}::/64`
}

/** The bucket of an address among `count`, by a hash that nobody outside can compute. */
export const bucketsOf = (count: number): ((address: string) => number) => {
  const secret = randomBytes(32)
  return (address) => createHmac("sha256", secret).update(networkOf(address)).digest().readUInt32BE() % count
}

/** See the file. */
export class RateLimits extends Context.Service<
  RateLimits,
  {
    /** Takes a token from the key's bucket; fails with 429 where there is none. */
    readonly key: (name: string) => Effect.Effect<void, Problem>
    /** {@link key}, for a caller without a valid key. */
    readonly address: (address: string) => Effect.Effect<void, Problem>
  }
>()("paid-once/http/RateLimits") {
  static readonly layerNoDeps: Layer.Layer<RateLimits, never, RateLimiter.RateLimiterStore> = Layer.effect(
    RateLimits,
    Effect.gen(function* () {
      const { rateLimit } = yield* RateLimitSettings
      if (rateLimit === undefined) return RateLimits.of({ key: () => Effect.void, address: () => Effect.void })
      const limiter = yield* RateLimiter.make
      const bucketOf = bucketsOf(addressBuckets)
      const { limit, windowMillis } = rateLimit

      const take = (bucket: string, whose: string) =>
        Effect.clockWith((clock) =>
          limiter.consume({ algorithm: "token-bucket", key: bucket, limit, window: windowMillis }).pipe(
            // A wall clock that is set back would leave the buckets empty until it has caught up.
            Effect.provideService(
              Clock.Clock,
              Object.create(clock, { currentTimeMillisUnsafe: { value: () => Monotonic.millisUnsafe(clock) } })
            )
          )
        ).pipe(
          Effect.asVoid,
          Effect.catch(({ reason }) =>
            reason._tag === "RateLimitExceeded"
              ? Effect.fail(refused(rateLimit, whose, Duration.toMillis(reason.retryAfter)))
              : Effect.die(reason)
          )
        )

      return RateLimits.of({
        key: (name) => take(`key ${name}`, `the API key ${name}`),
        address: (address) => take(`address ${bucketOf(address)}`, "this address")
      })
    })
  )

  static readonly layer: Layer.Layer<RateLimits> = Layer.provide(this.layerNoDeps, RateLimiter.layerStoreMemory)
}

const refused = ({ limit, windowMillis }: RateLimit, whose: string, waitMillis: number) => {
  const seconds = Math.max(1, Math.ceil(waitMillis / 1_000))
  return new Problem({
    status: 429,
    detail: `${whose} has sent more than ${limit} requests in ${windowMillis / 1_000} s: ask again in ${seconds} s`,
    headers: { "retry-after": String(seconds) }
  })
}
