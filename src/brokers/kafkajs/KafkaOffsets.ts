/**
 * Commits a member's places in its partitions: one request at a time, with all that was noted since the last one.
 *
 * **Why a slice does not wait for it**
 *
 * A broker answers the requests of a connection one after the other, and kafkajs has one connection to a broker: a commit stands behind
 * the fetch that waits for records, and behind the commits of the other partitions. With 8 partitions at 500 records a second that took
 * 20 milliseconds a slice, in which the partition's next records waited. The effects are committed by then: a place that comes a little
 * later costs nothing, and one that is lost brings back records which are found applied.
 */
import { Effect, Latch } from "effect"
import * as Backoff from "../../platform/Backoff.ts"
import { BrokerUnavailable } from "../Broker.ts"
import * as KafkaErrors from "./KafkaErrors.ts"

/** Sends offsets as kafkajs does, in the generation that it is in at that moment. */
export type Send = (offsets: {
  readonly topics: Array<{
    readonly topic: string
    readonly partitions: Array<{ readonly partition: number; readonly offset: string }>
  }>
}) => Promise<void>

/** Whose place is committed: it lives for one generation of the group. */
export interface Owner {
  readonly partition: number
  readonly isLost: () => boolean
  /** The group has moved on without us. */
  readonly lose: () => void
}

/** From the end of one request to the next: what a crash brings back is that much older, and the requests of an hour of load are few. */
const gapMillis = 100

/** Between two tries at the end, for which there are seconds only. */
const endingMillis = 50

export interface Offsets {
  /** From now on the owner's place is `offset`. It is committed soon, unless the owner is lost before. */
  readonly note: (owner: Owner, offset: bigint, send: Send) => void
  /** Commits what is noted, for ever. */
  readonly run: Effect.Effect<never>
  /** Commits what is noted now, and waits until all of it is committed, or lost: for a consumer that ends. */
  readonly settled: Effect.Effect<void>
}

export const make = ({
  outcome,
  timeoutMillis,
  wireTopic
}: {
  readonly wireTopic: string
  /** Behind kafkajs' own timeout: the net under a request that it forgot. */
  readonly timeoutMillis: number
  readonly outcome: (available: boolean) => Effect.Effect<void>
}): Offsets => {
  const noted = new Map<Owner, bigint>()
  const someNoted = Latch.makeUnsafe(false)
  const noneNoted = Latch.makeUnsafe(true)
  const ending = Latch.makeUnsafe(false)
  let send: Send | undefined

  const note = (owner: Owner, offset: bigint, through: Send) => {
    send = through
    if (offset <= (noted.get(owner) ?? 0n)) return
    noted.set(owner, offset)
    noneNoted.closeUnsafe()
    someNoted.openUnsafe()
  }

  /** Takes what was sent off the list, unless there is more by now. */
  const done = (sent: ReadonlyMap<Owner, bigint>) => {
    sent.forEach((offset, owner) => {
      if (noted.get(owner) === offset) noted.delete(owner)
    })
    noted.forEach((_, owner) => {
      if (owner.isLost()) noted.delete(owner)
    })
    if (noted.size > 0) return
    someNoted.closeUnsafe()
    noneNoted.openUnsafe()
  }

  /**
   * One request. It goes through the generation that kafkajs is in at the moment of the call, and therefore only for owners whose
   * generation is that one: Kafka checks generations, not partitions, and would let us set back the place of a partition's new owner.
   *
   * kafkajs takes over a new generation and tells of it within one run of microtasks. A macrotask of our own sees
   * either both or none, so the check and the call can't fall between them.
   *
   * `consumer.commitOffsets` will not do: it tries again, by then perhaps in the next generation, and it does
   * nothing, successfully, once the consumer is stopping.
   */
  const commit = Effect.callback<void, BrokerUnavailable>((answer) => {
    const immediate = setImmediate(() => {
      const sent = new Map([...noted].filter(([owner]) => !owner.isLost()))
      const finish = () => answer(Effect.sync(() => done(sent)))
      if (sent.size === 0 || send === undefined) return finish()
      const partitions = [...sent].map(([{ partition }, offset]) => ({ partition, offset: String(offset) }))
      send({ topics: [{ topic: wireTopic, partitions }] }).then(finish, (cause: unknown) => {
        if (KafkaErrors.isOldGeneration(cause)) {
          // The group moves on without us, and says so on the next heartbeat too.
          sent.forEach((_, owner) => owner.lose())
          return finish()
        }
        answer(Effect.fail(new BrokerUnavailable({ operation: "commit", cause })))
      })
    })
    return Effect.sync(() => clearImmediate(immediate))
  }).pipe(
    Effect.timeoutOrElse({
      duration: timeoutMillis,
      orElse: () => Effect.fail(new BrokerUnavailable({ operation: "commit", cause: new Error("no answer") }))
    })
  )

  const run = Effect.gen(function* () {
    for (let failures = 0; ;) {
      yield* someNoted.await
      const failed = yield* Effect.matchEffect(commit, {
        onSuccess: () => Effect.succeed(false),
        onFailure: (error) =>
          Effect.logDebug(`the places in ${wireTopic} could not be committed, and are tried again`, error).pipe(
            Effect.andThen(outcome(false)),
            Effect.as(true)
          )
      })
      failures = failed ? failures + 1 : 0
      const waitMillis = failed ? yield* Backoff.millisAfter(Backoff.kafkaCommit, failures) : gapMillis
      yield* ending.isOpen()
        ? Effect.sleep(Math.min(waitMillis, endingMillis))
        : Effect.timeoutOption(ending.await, waitMillis)
    }
  })

  const settled = Effect.suspend(() => {
    ending.openUnsafe()
    return noneNoted.await
  })
  return { note, run, settled }
}
