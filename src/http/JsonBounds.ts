/**
 * Bounds what a JSON text can cost, by one pass over its bytes before `JSON.parse` builds objects of them.
 *
 * It is no parser and decides nothing about validity. A text that is not JSON may pass, and `JSON.parse` refuses it at the first wrong byte.
 */

/**
 * Objects, arrays, strings, numbers and the like in one text: an order of 1,000 lines has 4,004. A text of this many wrong fields takes some
 * twenty milliseconds to refuse, and nothing else runs meanwhile.
 */
export const maxValues = 10_000

/** An order is three deep. A gateway's report may be nested deeper, in parts that nobody reads here. */
export const maxDepth = 32

const quote = 0x22
const comma = 0x2c
const backslash = 0x5c
const [leftBracket, rightBracket] = [0x5b, 0x5d]
const [leftBrace, rightBrace] = [0x7b, 0x7d]

/** The bound that the text exceeds, as a sentence about it; undefined for a text within all bounds. */
export const exceededBy = (json: Uint8Array): string | undefined => {
  let isInString = false
  let depth = 0
  // Each comma and each opening bracket stands before at most one more value. Empty objects and arrays are counted twice.
  let values = 1
  for (let index = 0; index < json.length; index++) {
    const byte = json[index]
    if (isInString) {
      if (byte === backslash) index++
      else if (byte === quote) isInString = false
      continue
    }
    switch (byte) {
      case quote:
        isInString = true
        break
      case comma:
        values++
        break
      case leftBracket:
      case leftBrace:
        values++
        depth++
        break
      case rightBracket:
      case rightBrace:
        depth--
        break
    }
    if (depth > maxDepth) return `must be nested at most ${maxDepth} deep`
    if (values > maxValues) return `must have at most ${maxValues} values`
  }
  return undefined
}
