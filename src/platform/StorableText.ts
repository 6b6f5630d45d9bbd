/** Text that Postgres can store. A JavaScript string can also contain U+0000, or half a character (a lone surrogate), which no column can. */

/** Whether a column can store the text unchanged. */
export const isStorable = (text: string): boolean => text.isWellFormed() && !text.includes("\0")

/** The text with U+FFFD in the place of everything that no column can store. */
export const toStorable = (text: string): string => text.toWellFormed().replaceAll("\0", "\uFFFD")
