import { assert, it } from "@effect/vitest"
import { Redacted, Result } from "effect"
import * as SignedMessage from "../../src/platform/SignedMessage.ts"

const [newest, old, foreign] = ["the-newest-secret", "the-secret-before", "somebody-elses-secret"].map((text) =>
  Redacted.make(text)
) as [Redacted.Redacted, Redacted.Redacted, Redacted.Redacted]
const body = `{"type":"charge.captured"}`
const at = 1_800_000_000

const verify = (header: string, nowSeconds = at, secrets: ReadonlyArray<Redacted.Redacted> = [newest, old]) =>
  Result.match(SignedMessage.parse(header, nowSeconds, 300), {
    onFailure: () => false,
    onSuccess: (signed) => SignedMessage.isSigned(secrets, signed, Buffer.from(body))
  })

/** A header with a signature by each of the secrets. */
const header = (...secrets: ReadonlyArray<Redacted.Redacted>) =>
  `t=${at}${secrets.map((secret) => SignedMessage.sign(secret, at, body).replace(/^t=\d+/, "")).join("")}`

it("while a secret is replaced, a message that is signed with either one is believed, and no other", () => {
  assert.isTrue(verify(header(newest)))
  assert.isTrue(verify(header(old)))
  assert.isFalse(verify(header(foreign)))
  assert.isFalse(verify(header(old), at, [newest]), "a secret that was taken away")
  assert.isFalse(verify(header(newest), at, []))
})

it("a sender may sign with several secrets: one that is known suffices, wherever it stands", () => {
  assert.isTrue(verify(header(foreign, newest)))
  assert.isTrue(verify(header(newest, foreign)))
  assert.isFalse(verify(header(foreign, foreign)))
  assert.isTrue(verify(header(foreign, foreign, foreign, foreign, old)))
  assert.isFalse(verify(header(old, old, old, old, old, old)), "more than are compared")
})

it("a message is believed for five minutes before and after its time, and not a second longer", () => {
  for (const [seconds, expected] of [
    [0, true],
    [-300, true],
    [300, true],
    [-301, false],
    [301, false]
  ] as const) {
    assert.strictEqual(verify(header(newest), at + seconds), expected, `${seconds}`)
  }
})

it("a header that is written in another way is refused", () => {
  const good = header(newest)
  for (const wrong of [
    "",
    `${good} `,
    ` ${good}`,
    good.toUpperCase(),
    good.replace("v1", "v0"),
    `${good},v0=1`,
    `t=${at}`
  ]) {
    assert.isFalse(verify(wrong), wrong)
  }
  assert.isFalse(verify(good.replace(`t=${at}`, `t=${at + 1}`)), "the time is signed, too")
})
