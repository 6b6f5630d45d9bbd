/**
 * Messages that a shared secret signs: HMAC-SHA256 over a time and the body, so that neither a forged nor an old message is believed.
 *
 * The header reads `t=<Unix seconds>,v1=<hex>`, and the signature is over `<t>.<body>`. Source: Stripe, "Verify webhook signatures manually".
 */
import { Redacted, Result } from "effect"
import { createHmac, timingSafeEqual } from "node:crypto"

const hmac = (secret: Redacted.Redacted, atSeconds: number, body: string) =>
  createHmac("sha256", Redacted.value(secret)).update(`${atSeconds}.${body}`).digest()

/** The header of `body`, sent at `atSeconds` (Unix time). */
export const sign = (secret: Redacted.Redacted, atSeconds: number, body: string): string =>
  `t=${atSeconds},v1=${hmac(secret, atSeconds, body).toString("hex")}`

/** Whether `header` signs `body`, not longer than `toleranceSeconds` from now; else the reason why not. */
export const verify = (
  secret: Redacted.Redacted,
  header: string,
  body: string,
  nowSeconds: number,
  toleranceSeconds: number
): Result.Result<void, string> => {
  const match = /^t=(\d{1,12}),v1=([0-9a-f]{64})$/.exec(header)
  if (match === null) return Result.fail("must be t=<Unix seconds>,v1=<64 hex digits>")
  const atSeconds = Number(match[1])
  if (!timingSafeEqual(hmac(secret, atSeconds, body), Buffer.from(match[2]!, "hex")))
    return Result.fail("does not sign this body")
  // Both ways: a clock that is far ahead would make a message that is good for ever.
  return Math.abs(nowSeconds - atSeconds) > toleranceSeconds
    ? Result.fail(`is more than ${toleranceSeconds} seconds away from now`)
    : Result.succeed(undefined)
}
