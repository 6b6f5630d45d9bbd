/**
 * Commits a member's offsets: one request at a time, with all offsets that were noted since the last request.
 *
 * **Why a slice does not wait for its commit**
 *
 * A broker responds to the requests of a connection in order, and kafkajs has one connection to a broker. A commit waits behind the
 * fetch, which waits for records, and behind the commits of the other partitions. With 8 partitions at 500 records a second that took
 * 20 milliseconds per slice, during which the partition's next records waited. The effects of a slice are in the database before its
 * offset is committed: a later commit costs nothing, and a lost one only delivers records again that the inbox recognises.
 */
import { Effect, Latch } from "effect"
import * as Backoff from "../../platform/Backoff.ts"
import { BrokerUnavailable } from "../Broker.ts"
import * as KafkaErrors from "./KafkaErrors.ts"

/** Sends a commit request through kafkajs, in the generation of that moment. */
export type Send = (offsets: {
  readonly topics: Array<{
    readonly topic: string
    readonly partitions: Array<{ readonly partition: number; readonly offset: string }>
  }>
}) => Promise<void>

/** The reader whose offset is committed. It lives for one generation of the group. */
export interface Owner {
  readonly partition: number
  readonly isLost: () => boolean
  /** The group has entered another generation. */
  readonly lose: () => void
}

/** The pause between two requests. It bounds how many records a crash delivers again, and keeps the requests under load few. */
const gapMillis = 100

/** The longest pause between two attempts while the consumer ends, which has only seconds. */
const endingMillis = 50

export interface Offsets {
  /** Commits `offset` for the owner soon, unless the owner is lost before. */
  readonly note: (owner: Owner, offset: bigint, send: Send) => void
  /** Commits the noted offsets, and ends by interruption only. */
  readonly run: Effect.Effect<never>
  /** Waits until all noted offsets are committed or their owners lost. For a consumer that ends: the pauses become short. */
  readonly settled: Effect.Effect<void>
}

export const make = ({
  outcome,
  timeoutMillis,
  wireTopic
}: {
  readonly wireTopic: string
  /** Longer than kafkajs' own timeout: for a request that kafkajs has lost. */
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

  /** Removes the offsets that were sent, unless a later one was noted meanwhile. */
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
   * One request. It is sent in kafkajs' generation of that moment, so it may contain only owners of that generation: Kafka checks
   * generations and not partitions, and would let this member set back the offset of a partition's new owner.
   *
   * kafkajs enters a new generation and emits its event within one run of microtasks. A separate macrotask sees either both or neither,
   * so the generation can't change between the check and the call.
   *
   * `consumer.commitOffsets` can't be used: it retries, perhaps in the next generation, and it succeeds without doing anything once the
   * consumer is stopping.
   */
  const commit = Effect.callback<void, BrokerUnavailable>((answer) => {
    const immediate = setImmediate(() => {
      const sent = new Map([...noted].filter(([owner]) => !owner.isLost()))
      const finish = () => answer(Effect.sync(() => done(sent)))
      if (sent.size === 0 || send === undefined) return finish()
      const partitions = [...sent].map(([{ partition }, offset]) => ({ partition, offset: String(offset) }))
      send({ topics: [{ topic: wireTopic, partitions }] }).then(finish, (cause: unknown) => {
        if (KafkaErrors.isOldGeneration(cause)) {
          // The next heartbeat reports the rebalance, too.
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
          Effect.logDebug(`the offsets of ${wireTopic} could not be committed and are tried again`, error).pipe(
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
