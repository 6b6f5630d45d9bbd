/** Text that Postgres can store. A JavaScript string can also contain U+0000, or half a character (a lone surrogate), which no column can. */

/** Whether a column can store the text unchanged. */
export const isStorable = (text: string): boolean => text.isWellFormed() && !text.includes("\0")

/** The text with U+FFFD in the place of everything that no column can store. */
export const toStorable = (text: string): string => text.toWellFormed().replaceAll("\0", "\uFFFD")

/**
 * Characters that do harm where they are stored or printed. A line break forges a line of the log, and an escape moves a terminal's cursor.
 * Half a character has no UTF-8. A mark of direction turns the text around it.
 */
export const unpresentable = /[\p{Cc}\p{Cs}\p{Bidi_Control}\u2028\u2029]/gu

/**
 * Makes a text from outside fit to be stored, sent, logged and read. It has at most `maxLength` UTF-16 units, with an ellipsis where it was
 * longer. U+FFFD stands in the place of each character that is not for reading.
 */
export const presentable = (text: string, maxLength: number): string => {
  if (text.length <= maxLength) return text.replaceAll(unpresentable, "\uFFFD")
  // Cut first: a megabyte costs no more than a sentence. A character that the cut halves is left out.
  const cut = text.slice(0, maxLength - 1)
  const end = /[\uD800-\uDBFF]$/.test(cut) ? -1 : undefined
  return `${cut.slice(0, end).replaceAll(unpresentable, "\uFFFD")}…`
}
