/**
 * How often an address may present a wrong ADMIN_TOKEN, or sign in with a wrong token. A person has chosen that token, so it may be guessed.
 * An API key has 32 random bytes, and needs no such limit.
 *
 * RateLimits.ts counts requests, and is off on loopback. This counts failures, and is always on: any program of this machine can guess. Above the limit
 * nothing is compared any more, so a right guess looks like a wrong one. Addresses share a fixed number of buckets, as in RateLimits.ts.
 */
import { Effect } from "effect"
import * as Monotonic from "../../platform/Monotonic.ts"
import { Problem } from "../Problems.ts"
import { bucketsOf } from "./RateLimits.ts"

/** A person mistypes a few times. A dictionary of a million words takes seventy days at the rate of {@link refillMillis}. */
const maxFailures = 10
/** The time after which one failure is forgotten. */
const refillMillis = 6_000
/** Some 16 kilobytes. */
const bucketCount = 1_024

/** See the file. Both take the address of the request's socket. */
export interface Guesses {
  /** 429 for an address that has failed too often; undefined where it may try. */
  readonly refusal: (address: string) => Effect.Effect<Problem | undefined>
  /** Counts a failure. Whether it was the last one for now. */
  readonly failed: (address: string) => Effect.Effect<boolean>
}

export const make = (): Guesses => {
  const bucketOf = bucketsOf(bucketCount)
  // The time at which each bucket is empty of failures again. One failure adds to it what one failure takes to be forgotten.
  const clearAtMillis = new Float64Array(bucketCount).fill(-Infinity)
  return {
    refusal: (address) =>
      Effect.map(Monotonic.millis, (now) => {
        const waitMillis = clearAtMillis[bucketOf(address)]! - now - (maxFailures - 1) * refillMillis
        if (waitMillis <= 0) return undefined
        const seconds = Math.ceil(waitMillis / 1_000)
        return new Problem({
          status: 429,
          detail: `this address has sent more than ${maxFailures} wrong tokens: try again in ${seconds} s`,
          headers: { "retry-after": String(seconds) }
        })
      }),
    failed: (address) =>
      Effect.map(Monotonic.millis, (now) => {
        const bucket = bucketOf(address)
        clearAtMillis[bucket] = Math.max(now, clearAtMillis[bucket]!) + refillMillis
        return clearAtMillis[bucket] - now > (maxFailures - 1) * refillMillis
      })
  }
}
