/** Writes text into an existing buffer: the hot path makes no buffer for each piece of text. */

/** The bytes of `text` in UTF-8. */
export const utf8Length = (text: string): number => {
  // Names and ids are short and ASCII: a loop in JavaScript costs less than a native call.
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
