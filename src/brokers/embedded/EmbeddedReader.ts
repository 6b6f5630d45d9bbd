/**
 * The reader of one partition for one member of a group of the embedded broker.
 *
 * It stands by for as long as its consumer runs, and reads only under the partition's share. What it knows of the group's place
 * it knows for one tenure: the lost share ends it, and so does the discovery that somebody else has claimed the place since.
 */
import { Deferred, Effect, Exit, Latch, Option, Semaphore } from "effect"
import type { SqlError } from "effect/sql"
import * as Backoff from "../../platform/Backoff.ts"
import type { Membership } from "../../platform/Ownership.ts"
import type { BrokerUnavailable, ConsumeOptions, Slice } from "../Broker.ts"
import type * as EmbeddedLog from "./EmbeddedLog.ts"

/** The time from taking a partition over to losing it. */
interface Tenure {
  readonly lost: Deferred.Deferred<void>
  /** Unknown until the group's place is claimed. */
  place: EmbeddedLog.Claim | undefined
  /** The slice that the handler has not managed yet. */
  pending: { readonly slice: Slice; readonly more: boolean } | undefined
  failures: number
  /** Somebody claimed the place after us: nothing that we commit counts any more. */
  fenced: boolean
}

/** What a turn came to, and so what to wait for before the next one. */
type Outcome = "go-on" | "caught-up" | "failed" | "lost"

export interface Reader<R> {
  /** One turn: at most one slice, and the wait after it. Run in a supervised loop. */
  readonly step: Effect.Effect<void, BrokerUnavailable, R>
  /** Something may have been appended, or the share was won. */
  readonly wake: Effect.Effect<void>
  /** The share is gone: what is under way is interrupted, and nothing of this tenure is used again. */
  readonly lose: Effect.Effect<void>
  /** Starts no further slice, and waits for the one under way. */
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
  /** Taken while the handler runs; taken for good in order to finish. */
  const turn = Semaphore.makeUnsafe(1)
  let stopping = false
  let tenure: Tenure | undefined

  const commit = (current: Tenure, generation: bigint, nextOffset: bigint) =>
    Effect.map(exchange("commit", log.commit(at, generation, nextOffset)), (ours) => {
      if (!ours) current.fenced = true
    })

  /** The slice to hand out next, or undefined when there is nothing. */
  const nextSlice = Effect.fnUntraced(function* (current: Tenure) {
    const { generation, nextOffset } = (current.place ??= yield* exchange("claim", log.claim(at)))
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
    const exit = yield* turn.withPermit(Effect.exit(handle(slice)))
    if (current.fenced) {
      // The share's lock may be gone without our knowing yet. Claiming the place back at once would be a tug-of-war with its
      // owner: wait, and claim it when the share is ours after that.
      if (tenure === current) tenure = undefined
      return "lost"
    }
    if (Exit.isFailure(exit)) {
      current.failures++
      // Whoever handles slices says what went wrong with one (Consumer).
      yield* Effect.logDebug(
        `consumer ${group}: slice at offset ${slice.records[0].offset} of ${topic} ${partition} failed and comes again`,
        exit.cause
      )
      return "failed"
    }
    const { generation } = current.place!
    current.place = { generation, nextOffset: slice.records.at(-1)!.offset + 1n }
    current.pending = undefined
    current.failures = 0
    return more ? "go-on" : "caught-up"
  })

  const step = Effect.gen(function* () {
    if (stopping) return yield* Effect.never
    // Closed before looking, so that what is appended while we look opens it again.
    yield* latch.close
    const outcome = yield* membership.use(
      partition,
      Effect.suspend(() => {
        const current = (tenure ??= {
          lost: Deferred.makeUnsafe(),
          place: undefined,
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
        // Outside of the share, so that it can go to another member meanwhile.
        return yield* Effect.flatMap(Backoff.millisAfter(Backoff.embeddedSlice, tenure?.failures ?? 1), Effect.sleep)
      case "caught-up":
      case "lost":
        return yield* Effect.asVoid(Effect.timeoutOption(latch.await, pollMillis))
    }
  })

  return {
    step,
    wake: Effect.asVoid(latch.open),
    lose: Effect.suspend(() => {
      const current = tenure
      tenure = undefined
      return current === undefined ? Effect.void : Effect.asVoid(Deferred.succeed(current.lost, undefined))
    }),
    finish: Effect.suspend(() => {
      stopping = true
      return Effect.asVoid(turn.take(1))
    })
  }
}
