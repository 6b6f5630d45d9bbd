/**
 * The reader of one partition for one member of a group of the embedded broker.
 *
 * It exists as long as its consumer runs, and reads only while this member owns the partition. A tenure is the time between taking the
 * partition over and losing it. The reader knows the group's offset for one tenure. It also ends when another reader has claimed the offset.
 */
import { Deferred, Effect, Exit, Latch, Option, Semaphore } from "effect"
import type { SqlError } from "effect/sql"
import * as Backoff from "../../platform/Backoff.ts"
import type { Membership } from "../../platform/Ownership.ts"
import type { BrokerUnavailable, ConsumeOptions, Slice } from "../Broker.ts"
import type * as EmbeddedLog from "./EmbeddedLog.ts"

/** The state of a reader from taking its partition over to losing it. */
interface Tenure {
  readonly lost: Deferred.Deferred<void>
  /** Undefined until the group's offset is claimed. */
  claim: EmbeddedLog.Claim | undefined
  /** The slice that is not handled yet. */
  pending: { readonly slice: Slice; readonly more: boolean } | undefined
  failures: number
  /** Another reader has claimed the offset since: commits of this tenure are ignored. */
  fenced: boolean
}

/** The outcome of a step, which decides how long to wait before the next one. */
type Outcome = "go-on" | "caught-up" | "failed" | "lost"

export interface Reader<R> {
  /** At most one slice, and the wait after it. Runs in a supervised loop. */
  readonly step: Effect.Effect<void, BrokerUnavailable, R>
  /** Ends the wait: records may have been appended, or this member now owns the partition. */
  readonly wake: () => void
  /** This member no longer owns the partition: the slice in flight is interrupted, and the tenure ends. */
  readonly lose: Effect.Effect<void>
  /** Starts no further slice, and waits for the one in flight. */
  readonly finish: Effect.Effect<void>
}

export const make = <E, R>({
  exchange,
  group,
  handle,
  log,
  membership,
  partition,
  pollMillis,
  sliceSize,
  topic
}: ConsumeOptions & {
  readonly exchange: <A>(
    operation: string,
    effect: Effect.Effect<A, SqlError.SqlError>
  ) => Effect.Effect<A, BrokerUnavailable>
  readonly handle: (slice: Slice) => Effect.Effect<void, E, R>
  readonly log: ReturnType<typeof EmbeddedLog.make>
  readonly membership: Membership
  readonly partition: number
  readonly pollMillis: number
}): Reader<R> => {
  const at = { group, topic, partition }
  const latch = Latch.makeUnsafe(true)
  /** Held while the handler runs, and for good once the reader has finished. */
  const handling = Semaphore.makeUnsafe(1)
  let stopping = false
  let tenure: Tenure | undefined

  const commit = (current: Tenure, generation: bigint, nextOffset: bigint) =>
    Effect.map(exchange("commit", log.commit(at, generation, nextOffset)), (isOwner) => {
      if (!isOwner) current.fenced = true
    })

  /** The next slice; undefined at the end of the log. */
  const nextSlice = Effect.fnUntraced(function* (current: Tenure) {
    const { generation, nextOffset } = (current.claim ??= yield* exchange("claim", log.claim(at)))
    if (current.pending !== undefined) return current.pending
    const {
      more,
      records: [first, ...rest]
    } = yield* exchange("fetch", log.fetch(at, nextOffset, sliceSize))
    if (first === undefined) return undefined
    const commitOffset = (rest.at(-1) ?? first).offset + 1n
    const slice: Slice = {
      topic,
      partition,
      records: [first, ...rest],
      commit: commit(current, generation, commitOffset)
    }
    return (current.pending = { slice, more })
  })

  const serve = Effect.fnUntraced(function* (current: Tenure): Effect.fn.Return<Outcome, BrokerUnavailable, R> {
    const pending = yield* nextSlice(current)
    if (pending === undefined) return "caught-up"
    const { more, slice } = pending
    const exit = yield* handling.withPermit(Effect.exit(handle(slice)))
    if (current.fenced) {
      // The partition's lock may be lost before this member learns of it. Claiming the offset back at once would fight the new owner. The tenure ends
      // instead, and the next one claims the offset if this member still owns the partition after the wait.
      if (tenure === current) tenure = undefined
      return "lost"
    }
    if (Exit.isFailure(exit)) {
      current.failures++
      // Debug only: the handler reports its own failures.
      yield* Effect.logDebug(
        `consumer ${group}: slice at offset ${slice.records[0].offset} of ${topic} ${partition} failed and is delivered again`,
        exit.cause
      )
      return "failed"
    }
    const { generation } = current.claim!
    current.claim = { generation, nextOffset: slice.records.at(-1)!.offset + 1n }
    current.pending = undefined
    current.failures = 0
    return more ? "go-on" : "caught-up"
  })

  const step = Effect.gen(function* () {
    if (stopping) return yield* Effect.never
    // Closed before the fetch: an append during the fetch opens it again.
    yield* latch.close
    const outcome = yield* membership.use(
      partition,
      Effect.suspend(() => {
        const current = (tenure ??= {
          lost: Deferred.makeUnsafe(),
          claim: undefined,
          pending: undefined,
          failures: 0,
          fenced: false
        })
        return Effect.raceFirst(serve(current), Effect.as(Deferred.await(current.lost), "lost" as const))
      })
    )
    switch (Option.getOrElse(outcome, (): Outcome => "lost")) {
      case "go-on":
        return
      case "failed":
        // Outside of the ownership, so that another member can take the partition over meanwhile.
        return yield* Effect.flatMap(Backoff.millisAfter(Backoff.embeddedSlice, tenure?.failures ?? 1), Effect.sleep)
      case "caught-up":
      case "lost":
        return yield* Effect.asVoid(Effect.timeoutOption(latch.await, pollMillis))
    }
  })

  return {
    step,
    wake: () => void latch.openUnsafe(),
    lose: Effect.suspend(() => {
      const current = tenure
      tenure = undefined
      return current === undefined ? Effect.void : Effect.asVoid(Deferred.succeed(current.lost, undefined))
    }),
    finish: Effect.suspend(() => {
      stopping = true
      return Effect.asVoid(handling.take(1))
    })
  }
}
