/** Text that a column can hold. JavaScript has strings that Postgres has not: with a NUL in them, or with half a character (a lone surrogate). */

/** Whether a column gives back the same text. */
export const isStorable = (text: string): boolean => text.isWellFormed() && !text.includes("\0")

/** The text with U+FFFD for each thing in it that no column holds. */
export const toStorable = (text: string): string => text.toWellFormed().replaceAll("\0", "\uFFFD")
