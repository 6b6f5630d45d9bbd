/** Text written into a buffer that is there already: what the hot path does instead of making a buffer for each piece. */

/** The bytes of `text` in UTF-8. */
export const utf8Length = (text: string): number => {
  // Names and ids are short and ASCII: looking at them costs less than a call out of JavaScript.
  if (text.length > shortText) return Buffer.byteLength(text)
  for (let index = 0; index < text.length; index++) {
    if (text.charCodeAt(index) > 0x7f) return Buffer.byteLength(text)
  }
  return text.length
}

/** Writes `text`, whose UTF-8 has `length` bytes, at `start`, and returns where it ends. */
export const writeText = (target: Buffer, text: string, length: number, start: number): number => {
  if (length > shortText || length !== text.length) return start + target.write(text, start, length, "utf8")
  for (let index = 0; index < length; index++) target[start + index] = text.charCodeAt(index)
  return start + length
}

/** Up to here a loop in JavaScript is faster than Node's own function; a UUID has 36. */
const shortText = 64
