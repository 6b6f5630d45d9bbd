/** What a reader can tell from the versions of each aggregate in the order of their arrival: new, repeated, overtaken, or lost. */

/** See the file. */
export interface Arrivals {
  /** Notes an event, and tells whether it is new. */
  readonly note: (aggregateId: string, version: number) => boolean
  /** The highest version of each aggregate. */
  readonly versions: ReadonlyMap<string, number>
  /** Versions below the highest that have not arrived. */
  readonly gaps: () => number
  /** Events that arrived again. */
  readonly duplicates: () => number
  /** Events that arrived after a later one of their aggregate. */
  readonly overtaken: () => number
}

/** Nothing has arrived yet. Versions are contiguous from 1. */
export const make = (): Arrivals => {
  const versions = new Map<string, number>()
  /** Of aggregates that had gaps: the versions that are missing. */
  const missing = new Map<string, Set<number>>()
  let duplicates = 0
  let overtaken = 0

  const skip = (aggregateId: string, from: number, to: number) => {
    const skipped = missing.get(aggregateId) ?? new Set()
    missing.set(aggregateId, skipped)
    for (let version = from; version < to; version++) skipped.add(version)
  }

  const note = (aggregateId: string, version: number): boolean => {
    const last = versions.get(aggregateId) ?? 0
    if (version > last) {
      if (version > last + 1) skip(aggregateId, last + 1, version)
      versions.set(aggregateId, version)
      return true
    }
    if (missing.get(aggregateId)?.delete(version) === true) {
      overtaken++
      return true
    }
    duplicates++
    return false
  }

  return {
    note,
    versions,
    gaps: () => [...missing.values()].reduce((sum, { size }) => sum + size, 0),
    duplicates: () => duplicates,
    overtaken: () => overtaken
  }
}
