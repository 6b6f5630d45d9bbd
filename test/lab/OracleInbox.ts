/** The invariants of each consumer: its effects, its holds, and its group's offsets. */
import type { Committed } from "./LabDatabase.ts"
import { type Invariant, keyOf, type Named, type Violation } from "./Oracle.ts"

/** A record of the topic as consumers know it, whoever wrote it. */
export interface InboxRecord {
  readonly partition: number
  readonly offset: number
  /** The event's id; for a record that can't be read `topic:partition:offset`. */
  readonly event: string
  readonly order: string
  readonly version: number | undefined
  /** No handler can apply it. */
  readonly isBad: boolean
}

/** The state that the consumers' invariants look at. */
export interface InboxWorld {
  readonly committed: Committed
  readonly records: ReadonlyArray<InboxRecord>
  /** The groups, and the offset of each in each partition. */
  readonly groups: ReadonlyArray<{ readonly name: string; readonly places: ReadonlyArray<number> }>
  /** Events whose handlers failed by their own fault, as `consumer eventId`. */
  readonly failed: ReadonlySet<string>
  /** Whether an actor has an open transaction, which may still commit. */
  readonly inTransaction: boolean
  /** The name of an event or a record in a story, by its id. */
  readonly nameOf: (event: string) => string
}

const broken = (invariant: Invariant, detail: string): Violation => ({ invariant, detail })

/** The rows of one consumer. */
const viewOf = ({ committed, records }: InboxWorld, consumer: string, outboxDiscarded: ReadonlySet<string>) => {
  const mine = <A extends { readonly consumer: string }>(all: ReadonlyArray<A>) =>
    all.filter((one) => one.consumer === consumer)
  const ids = (all: ReadonlyArray<{ readonly event: string }>) => new Set(all.map(({ event }) => event))
  const { holds, letters, marks, skipped, waiting } = committed.inbox
  const effects = mine(committed.effects)
  /** Versions that need no effect: given up here or before they were sent. */
  const passed = new Set(outboxDiscarded)
  for (const letter of mine(letters))
    if (letter.status === "discarded" && letter.version !== null)
      passed.add(keyOf({ order: letter.order, version: letter.version }))
  for (const { after, event, to } of mine(skipped)) {
    const order = records.find((record) => record.event === event)?.order
    if (order === undefined) continue
    for (let version = after + 1; version <= to; version++) passed.add(keyOf({ order, version }))
  }
  const discarded = ids(mine(letters).filter(({ status }) => status === "discarded"))
  return {
    effects,
    applied: ids(effects),
    marks: mine(marks),
    waiting: mine(waiting),
    waitingIds: ids(mine(waiting)),
    letters: mine(letters),
    letterIds: ids(mine(letters)),
    discarded,
    holds: mine(holds),
    /** Whether the record needs no effect any more. */
    isPassed: ({ event, order, version }: InboxRecord) =>
      discarded.has(event) || (version !== undefined && passed.has(keyOf({ order, version }))),
    passed
  }
}

/** Versions of aggregates that were given up before they were sent. */
const givenUp = ({ refused }: Committed): ReadonlySet<string> =>
  new Set(refused.filter(({ status }) => status === "discarded").map(keyOf))

export const inboxSafety = (world: InboxWorld, named: Named): Violation | undefined => {
  const outboxDiscarded = givenUp(world.committed)
  const published = new Map(
    world.records.flatMap(({ event, order, version }) =>
      version === undefined ? [] : [[keyOf({ order, version }), event]]
    )
  )
  for (const { name, places } of world.groups) {
    const view = viewOf(world, name, outboxDiscarded)
    const seen = new Set<string>()
    const versions = new Map<string, number>()
    for (const effect of view.effects) {
      if (seen.has(effect.event) || seen.has(keyOf(effect)))
        return broken("an effect happens at most once per event", `${named(effect)} had its effect at ${name} twice`)
      seen.add(effect.event).add(keyOf(effect))
      if (published.get(keyOf(effect)) !== effect.event)
        return broken(
          "an event keeps its id",
          `${named(effect)} had its effect at ${name} under an id that it never had`
        )
      const before = versions.get(effect.order) ?? 0
      let next = before + 1
      while (next < effect.version && view.passed.has(keyOf({ order: effect.order, version: next }))) next += 1
      // An event that was given up before it was sent may still arrive late: the operator chose that.
      if (effect.version !== next && !outboxDiscarded.has(keyOf(effect)))
        return broken(
          "effects come in version order",
          `${named(effect)} had its effect at ${name} behind version ${before}`
        )
      versions.set(effect.order, Math.max(before, effect.version))
      if (view.discarded.has(effect.event))
        return broken(
          "what was discarded has no effect",
          `${named(effect)} was discarded at ${name}, and had its effect`
        )
    }
    for (const bad of world.records) {
      if (bad.version !== undefined || view.discarded.has(bad.event)) continue
      const behind = world.records.find(
        (record) =>
          record.order === bad.order &&
          record.offset > bad.offset &&
          view.applied.has(record.event) &&
          !world.records.some((first) => first.event === record.event && first.offset < bad.offset)
      )
      if (behind !== undefined)
        return broken(
          "effects come in version order",
          `${world.nameOf(behind.event)} had its effect at ${name} in front of ${world.nameOf(bad.event)}, which has its key and came first`
        )
    }
    for (const { event } of view.marks) {
      // An open transaction may still write the effect to the mark.
      if (!world.inTransaction && !view.applied.has(event))
        return broken(
          "a mark stands for an effect",
          `${world.nameOf(event)} is marked as applied by ${name}, and had no effect`
        )
    }
    for (const { event } of [...view.waiting, ...view.letters]) {
      if (!world.records.some((record) => record.event === event))
        return broken("an event keeps its id", `${name} has put something aside under an id that no event ever had`)
    }
    for (const hold of view.holds) {
      const isToBlame =
        world.failed.has(`${name} ${hold.event}`) ||
        world.records.some(({ event, isBad }) => isBad && event === hold.event)
      if ((hold.attempts > 0 || hold.status === "dead") && !isToBlame)
        return broken(
          "only what fails is held",
          `${name} blames ${world.nameOf(hold.event)}, whose handler never failed`
        )
    }
    for (const record of world.records) {
      if (record.offset >= places[record.partition]!) continue
      const { event } = record
      if (
        !view.applied.has(event) &&
        !view.waitingIds.has(event) &&
        !view.letterIds.has(event) &&
        !view.isPassed(record)
      )
        return broken(
          "an offset passes nothing that is lost",
          `the place of ${name} is behind ${world.nameOf(event)}, which is neither applied nor parked`
        )
    }
  }
  return undefined
}

/**
 * The invariants once all faults have stopped, with handlers as they were. Each event is applied, given up, or waits behind an event of its own
 * aggregate that can't be applied.
 */
export const inboxSettled = (world: InboxWorld): Violation | undefined => {
  const outboxDiscarded = givenUp(world.committed)
  for (const { name } of world.groups) {
    const view = viewOf(world, name, outboxDiscarded)
    const holds = new Map(view.holds.map((hold) => [hold.order, hold]))
    for (const hold of view.holds) {
      if (hold.status === "retrying")
        return broken("what is held is tried", `${name} holds ${world.nameOf(hold.event)}, and nobody tries it`)
      if (hold.status === "dead") continue
      const head = world.records.find(({ event }) => event === hold.event)
      const missing = Array.from({ length: (head?.version ?? 1) - 1 }, (_, index) => index + 1).filter(
        (version) => !view.effects.some((one) => one.order === hold.order && one.version === version)
      )
      const isMissing = (version: number) =>
        !view.passed.has(keyOf({ order: hold.order, version })) &&
        !world.records.some((one) => one.order === hold.order && one.version === version)
      if (!missing.some(isMissing))
        return broken(
          "what is held is tried",
          `${name} waits for what comes before ${world.nameOf(hold.event)}, and it is there`
        )
    }
    const left = world.records.filter(
      (record) =>
        !view.applied.has(record.event) &&
        !view.isPassed(record) &&
        // Parked events, and dead letters, which are heads, belong to a hold.
        !(holds.has(record.order) && (view.waitingIds.has(record.event) || view.letterIds.has(record.event)))
    )
    const isTroubled = ({ order }: InboxRecord) =>
      world.records.some((one) => one.order === order && (one.isBad || world.failed.has(`${name} ${one.event}`)))
    const innocent = left.find((record) => !isTroubled(record))
    if (innocent !== undefined)
      return broken(
        "only its own aggregate waits for an event",
        `nothing is wrong with the aggregate of ${world.nameOf(innocent.event)}, and ${name} has neither applied it nor parked it`
      )
    if (left[0] !== undefined)
      return broken(
        "what can't be applied is parked",
        `${world.nameOf(left[0].event)} is neither applied by ${name} nor does it wait behind an event of its aggregate`
      )
  }
  return undefined
}

/** The invariants once handlers are repaired, and an operator has redriven dead letters and discarded records that can't be handled. */
export const inboxAtRest = (world: InboxWorld): Violation | undefined => {
  const outboxDiscarded = givenUp(world.committed)
  for (const { name, places } of world.groups) {
    const view = viewOf(world, name, outboxDiscarded)
    for (const record of world.records) {
      if (!view.applied.has(record.event) && !view.isPassed(record))
        return broken(
          "every event has its effect",
          `${world.nameOf(record.event)} is in the topic and had no effect at ${name}`
        )
      if (record.offset >= places[record.partition]!)
        return broken("every group comes to the end", `${name} has not got behind ${world.nameOf(record.event)}`)
    }
    const left = view.waiting[0] ?? view.holds[0] ?? view.letters.find(({ status }) => status === "dead")
    if (left !== undefined) return broken("what is held is tried", `${world.nameOf(left.event)} still waits at ${name}`)
  }
  return undefined
}
