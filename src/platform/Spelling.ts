/** Finds the name that a misspelt one was probably meant to be. */

/**
 * How many letters lie between two words: inserted, left out, replaced, or swapped with their neighbour. Counts to `limit` and answers
 * `limit + 1` beyond it.
 *
 * Source: the optimal string alignment distance (Damerau-Levenshtein without edits of a swapped pair).
 */
export const distance = (a: string, b: string, limit: number): number => {
  if (Math.abs(a.length - b.length) > limit) return limit + 1
  let beforeLast: ReadonlyArray<number> = []
  let last: ReadonlyArray<number> = Array.from({ length: b.length + 1 }, (_, column) => column)
  for (let row = 1; row <= a.length; row++) {
    const current = [row]
    for (let column = 1; column <= b.length; column++) {
      const isSame = a[row - 1] === b[column - 1]
      let least = Math.min(last[column]! + 1, current[column - 1]! + 1, last[column - 1]! + (isSame ? 0 : 1))
      const isSwapped = row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1]
      if (isSwapped) least = Math.min(least, beforeLast[column - 2]! + 1)
      current.push(least)
    }
    beforeLast = last
    last = current
  }
  return Math.min(last[b.length]!, limit + 1)
}

/** The name that is nearest to `word`, at most `limit` letters away; undefined where none is. Of two equally near ones the first counts. */
export const nearest = <A extends string>(word: string, names: ReadonlyArray<A>, limit: number): A | undefined => {
  let found: A | undefined
  let least = limit + 1
  for (const name of names) {
    const letters = distance(word, name, limit)
    if (letters < least) [found, least] = [name, letters]
  }
  return found
}
