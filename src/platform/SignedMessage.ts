/**
 * Messages that a shared secret signs: HMAC-SHA256 over a time and the body, so that neither a forged nor an old message is believed.
 *
 * The header reads `t=<Unix seconds>,v1=<hex>`, and the signature is over `<t>.<body>`. While a secret is replaced, a header may hold a `v1` for
 * each of the sender's secrets, and the receiver may know several. Source: Stripe, "Verify webhook signatures manually".
 */
import { Redacted, Result } from "effect"
import { createHmac, timingSafeEqual } from "node:crypto"

const hmac = (secret: Redacted.Redacted, atSeconds: number, body: string | Uint8Array) =>
  createHmac("sha256", Redacted.value(secret)).update(`${atSeconds}.`).update(body).digest()

/** The header of `body`, sent at `atSeconds` (Unix time). */
export const sign = (secret: Redacted.Redacted, atSeconds: number, body: string): string =>
  `t=${atSeconds},v1=${hmac(secret, atSeconds, body).toString("hex")}`

/** A sender that replaces a secret signs with two. More would only cost time. */
const maxSignatures = 5

const headerPattern = new RegExp(`^t=(\\d{1,12})((?:,v1=[0-9a-f]{64}){1,${maxSignatures}})$`)

/** What a header of the right form and age says. Whether it signs a body is still to be found out, by {@link isSigned}. */
export interface Signed {
  readonly atSeconds: number
  readonly signatures: ReadonlyArray<Buffer>
}

/** Reads a header that is not further than `toleranceSeconds` from now; else the reason why not. It costs nothing, and needs no body. */
export const parse = (header: string, nowSeconds: number, toleranceSeconds: number): Result.Result<Signed, string> => {
  const match = headerPattern.exec(header)
  if (match === null) {
    return Result.fail(`must be t=<Unix seconds>,v1=<64 hex digits>, with at most ${maxSignatures} v1`)
  }
  const atSeconds = Number(match[1])
  // Both ways: a clock that is far ahead would make a message that is good for ever.
  return Math.abs(nowSeconds - atSeconds) > toleranceSeconds
    ? Result.fail(`is more than ${toleranceSeconds} seconds away from now`)
    : Result.succeed({
        atSeconds,
        signatures: [...match[2]!.matchAll(/[0-9a-f]{64}/g)].map(([hex]) => Buffer.from(hex, "hex"))
      })
}

/**
 * Whether `body` is signed with one of the secrets. Every signature is compared with every secret's, in constant time: the time that this takes
 * tells nothing about which one was nearly right.
 */
export const isSigned = (
  secrets: ReadonlyArray<Redacted.Redacted>,
  { atSeconds, signatures }: Signed,
  body: Uint8Array
): boolean => {
  let found = false
  for (const secret of secrets) {
    const expected = hmac(secret, atSeconds, body)
    for (const signature of signatures) if (timingSafeEqual(expected, signature)) found = true
  }
  return found
}
