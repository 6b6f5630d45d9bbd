/** Counts in sentences for a person: `1 event`, `1,118 events`. */

/** The number as all sentences write it. */
export const numberOf = (count: number): string => count.toLocaleString("en")

/** The word for so many: `one` for 1, else `many`. */
export const plural = (count: number, one: string, many = `${one}s`): string => (count === 1 ? one : many)

/** The count with its word. */
export const countOf = (count: number, one: string, many?: string): string =>
  `${numberOf(count)} ${plural(count, one, many)}`
