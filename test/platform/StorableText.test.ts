import { assert, it } from "vitest"
import { presentable } from "../../src/platform/StorableText.ts"

it("a text from outside keeps its letters, and loses what can't be stored or forges a line", () => {
  assert.strictEqual(presentable("Grüße 😀 日本", 100), "Grüße 😀 日本")
  assert.strictEqual(presentable("a\u0000b\ud800c\r\nd\u001b[31me\u202ef\u2028g", 100), "a�b�c��d�[31me�f�g")
})

it("a text from outside is cut at its bound, between two characters, with an ellipsis", () => {
  assert.strictEqual(presentable("abcde", 5), "abcde")
  assert.strictEqual(presentable("abcdef", 5), "abcd…")
  assert.strictEqual(presentable("abc😀def", 5), "abc…")
  assert.strictEqual(presentable("x".repeat(1_000_000), 500).length, 500)
  assert.isTrue(presentable("😀".repeat(500), 500).isWellFormed())
})
