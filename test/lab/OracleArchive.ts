/** The invariants of the archive, and of what upkeep drops. */
import type { Committed } from "./LabDatabase.ts"
import { type Invariant, keyOf, type Named, type Violation } from "./Oracle.ts"
import { retention } from "./Parts.ts"

/** The state that these invariants check. */
export interface ArchiveWorld {
  readonly committed: Committed
  /** The id under which each event was first seen in the queue, by order and version (`keyOf`). */
  readonly firstIds: ReadonlyMap<string, string>
  /** The case keeps an archive. */
  readonly isArchived: boolean
  /** All archive rows that ever existed, by their events. */
  readonly everArchived: ReadonlyMap<string, Committed["archive"][number]>
  /** All marks of consumers that ever existed, by consumer and event. */
  readonly everMarked: ReadonlyMap<string, Committed["inbox"]["marks"][number]>
  /** The name of an event in a story, by its id. */
  readonly nameOf: (event: string) => string
}

const broken = (invariant: Invariant, detail: string): Violation => ({ invariant, detail })

const hourMillis = 3_600_000
const hours = (millis: number) => `${Math.floor(millis / hourMillis)} hours`

/** Upkeep drops nothing younger than its retention. An archived event's age counts from its publication, a mark's age from its effect. */
export const retentionSafety = (
  { committed: { archive, inbox, now }, everArchived, everMarked, nameOf }: ArchiveWorld,
  named: Named
): Violation | undefined => {
  const isPast = (at: number, days: number) => now - at >= days * 24 * hourMillis
  if (archive.length < everArchived.size) {
    const kept = new Set(archive.map(({ event }) => event))
    for (const row of everArchived.values())
      if (!kept.has(row.event) && !isPast(row.publishedAt, retention.outboxDays))
        return broken(
          "only what is past its retention is dropped",
          `${named(row)} was published ${hours(now - row.publishedAt)} ago, and is gone from the archive`
        )
  }
  if (inbox.marks.length < everMarked.size) {
    const kept = new Set(inbox.marks.map(({ consumer, event }) => `${consumer} ${event}`))
    for (const [key, { at, consumer, event }] of everMarked)
      if (!kept.has(key) && !isPast(at, retention.inboxDays))
        return broken(
          "only what is past its retention is dropped",
          `${consumer} applied ${nameOf(event)} ${hours(now - at)} ago, and its mark is gone`
        )
  }
  return undefined
}

/** Every event that has left the queue is archived once, or is a rejected event of the outbox. */
export const archiveAtRest = (
  { committed: { archive, orders, refused }, everArchived, firstIds, isArchived }: ArchiveWorld,
  named: Named
): Violation | undefined => {
  if (!isArchived) return undefined
  const archived = new Set([...everArchived.values()].map(keyOf))
  const givenUp = new Set(refused.map(keyOf))
  for (const { id, version: last } of orders) {
    for (let version = 1; version <= last; version++) {
      const event = { order: id, version }
      const key = keyOf(event)
      if (firstIds.has(key) && !archived.has(key) && !givenUp.has(key))
        return broken(
          "what left the queue is archived, or given up",
          `${named(event)} is neither in the queue nor in the archive, and nobody gave it up`
        )
    }
  }
  const twice = archive.find((row, index) => archive.findIndex((other) => keyOf(other) === keyOf(row)) < index)
  return twice === undefined
    ? undefined
    : broken("what left the queue is archived, or given up", `${named(twice)} is archived twice`)
}
