/**
 * Consuming from Kafka. kafkajs is the member of the group and the fetcher, and nothing else: it never waits for a slice.
 *
 * **Why not inside `eachBatch`**
 *
 * kafkajs fetches from a broker only when all batches of the last fetch are handled. A slice that fails or takes long, handled in
 * `eachBatch`, would hold up the other partitions and, in the end, the heartbeats. So `eachBatch` hands each batch to its
 * partition's reader (KafkaReader.ts) and returns; a reader that has enough pauses its partition. Every wait, every retry is
 * ours, nothing is ever thrown into kafkajs, and as its loop never stands still, heartbeats go out however long a slice takes.
 */
import { Cause, Clock, Deferred, Effect, Fiber, FiberSet, type Scope } from "effect"
import type { Consumer, EachBatchPayload } from "kafkajs"
import { setTimeout as sleep } from "node:timers/promises"
import * as Grace from "../../platform/Grace.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import { BrokerUnavailable, type ConsumeOptions, type Slice, type TopicUnavailable } from "../Broker.ts"
import { type Clients, close, KafkaSettings } from "./KafkaClient.ts"
import * as KafkaErrors from "./KafkaErrors.ts"
import * as KafkaOffsets from "./KafkaOffsets.ts"
import * as KafkaReader from "./KafkaReader.ts"

/**
 * How long a broker keeps a fetch that finds nothing; it answers at once when something comes. So it only bounds how soon a
 * partition is fetched again after a pause, and how soon a consumer can leave. Four idle requests a second are nothing.
 */
const maxWaitMillis = 250

/** A member hears of a rebalance by its heartbeat: this is how long the others wait for it. */
const heartbeatMillis = 1_000

/** A fetch brings that much of a partition at most: a few times a slice of ordinary events. */
const maxFetchBytes = 1_048_576

/** Partitions that a topic gets are seen after so long at the latest: one small request in half a minute. kafkajs' own five minutes are long for events that wait. */
const metadataMillis = 30_000

/** A request without an answer for so long has lost its connection. It must be replaced before the session is over. */
const requestTimeoutMillis = 5_000

/**
 * kafkajs' retries of joining and fetching: some eight seconds, a quick restart of a broker, after which the member is still
 * known. One that is started anew joins under a new name, and the group waits until the old one was silent for a session.
 */
const retry = { retries: 10, initialRetryTime: 100, maxRetryTime: 1_000 }

/** What kafkajs adds to the rebalance timeout before it gives a join up. */
const joinSlackMillis = 5_000

/** How often it is checked that kafkajs still lives. */
const watchMillis = 1_000

/** How often it is said that the broker answers. Soon enough for a start, where the last word was that it did not. */
const sayMillis = 100

/** How long a consumer that is to end waits for the slices under way. A slice takes milliseconds; one that is cut off comes again. */
const finishGraceMillis = 5_000

/** To leave a group takes one fetch's wait and one request; a join under way is waited for, or the group would wait for a ghost. */
const leaveGraceMillis = 5_000

/** A batch that is not taken is fetched again: not without a pause. */
const refusedPauseMillis = 50

/**
 * How many batches of a fetch kafkajs hands over side by side. Handing one over takes no time, but is followed by a heartbeat, for which
 * the next one would wait. For each fetch kafkajs starts that many workers, whether there is work for them or not: with 256 they were a
 * third of all that a busy process allocated.
 */
const concurrency = 16

export const make = Effect.fnUntraced(function* (
  clients: Clients,
  outcome: (available: boolean) => Effect.Effect<void>
) {
  const { prefix, sessionTimeoutMillis } = yield* KafkaSettings
  const grace = yield* Grace.make
  const requestTimeout = Math.min(requestTimeoutMillis, Math.ceil(sessionTimeoutMillis / 2))
  // Members rejoin at once, whatever their slices do: who has not after a session's time is gone.
  const rebalanceTimeout = sessionTimeoutMillis
  // Twice the time for a connection (kafkajs waits for another one's turn first), and the request itself.
  const longestFetchMillis = 3 * requestTimeout + joinSlackMillis
  // The longest that a healthy kafkajs is silent: a join that waits for a ghost, between two requests that time out.
  const silenceMillis = rebalanceTimeout + joinSlackMillis + 2 * requestTimeout

  const session = Effect.fnUntraced(function* <E, R>(
    { group, sliceSize, topic }: ConsumeOptions,
    handle: (slice: Slice) => Effect.Effect<void, E, R>
  ): Effect.fn.Return<never, BrokerUnavailable | TopicUnavailable, R | Scope.Scope> {
    const clock = yield* Clock.Clock
    const wireTopic = prefix + topic
    const failed = yield* Deferred.make<never, BrokerUnavailable | TopicUnavailable>()
    const client = clients.open({ requestTimeoutMillis: requestTimeout, retries: retry.retries, isPartByPart: false })
    const consumer: Consumer = client.kafka.consumer({
      groupId: prefix + group,
      allowAutoTopicCreation: false,
      sessionTimeout: sessionTimeoutMillis,
      rebalanceTimeout,
      heartbeatInterval: Math.min(heartbeatMillis, Math.floor(sessionTimeoutMillis / 3)),
      maxWaitTimeInMs: maxWaitMillis,
      minBytes: 1,
      maxBytesPerPartition: maxFetchBytes,
      metadataMaxAge: metadataMillis,
      // A restart of its own would be a second consumer beside the one that the caller starts.
      retry: { ...retry, restartOnFailure: () => Promise.resolve(false) }
    })
    let stopping = false
    let crashed = false
    /** Settles when kafkajs has joined, or has given up. */
    let joined: Promise<unknown> = Promise.resolve()

    // Finalizers run upwards from the last one: slices end, readers end, the group is left.
    yield* Effect.addFinalizer(() =>
      Effect.suspend(() =>
        close(
          client,
          async () => {
            // After a crash nobody answers: do not wait for that again.
            if (crashed) client.cut()
            await joined
            await consumer.disconnect()
          },
          grace("groups", leaveGraceMillis)
        )
      )
    )
    const runFork = yield* FiberSet.makeRuntime<R, unknown, never>()

    const fail = (operation: string, cause: unknown) => {
      crashed = true
      Deferred.doneUnsafe(failed, Effect.fail(KafkaErrors.toUnavailable(operation, topic, cause)))
    }
    /** kafkajs calls some listeners in the middle of its loop: nothing may escape into it. */
    const guarded =
      <Event>(listener: (event: Event) => void) =>
      (event: Event) => {
        try {
          listener(event)
        } catch (cause) {
          fail("consume", cause)
        }
      }

    const offsets = KafkaOffsets.make({ wireTopic, outcome, timeoutMillis: requestTimeout + watchMillis })
    runFork(offsets.run)
    let readers = new Map<number, KafkaReader.Reader<R>>()
    /** The last fiber of each partition, over: a reader starts when its predecessor's slice has ended. */
    const fibers = new Map<number, Fiber.Fiber<unknown>>()
    yield* Effect.addFinalizer(() =>
      Effect.suspend(() => {
        stopping = true
        return Effect.forEach(readers.values(), (reader) => reader.finish, {
          concurrency: "unbounded",
          discard: true
        }).pipe(
          Effect.andThen(offsets.settled),
          Effect.interruptible,
          Effect.timeoutOption(grace("slices", finishGraceMillis))
        )
      }).pipe(Effect.andThen(Effect.sync(() => readers.forEach((reader) => reader.lose()))))
    )

    const assign = (partitions: ReadonlyArray<number>) => {
      readers.forEach((reader, partition) => {
        reader.lose()
        fibers.get(partition)?.interruptUnsafe()
      })
      readers = new Map(
        partitions.map((partition) => [
          partition,
          KafkaReader.make({
            topic,
            wireTopic,
            partition,
            sliceSize,
            handle,
            offsets
          })
        ])
      )
      readers.forEach((reader, partition) => {
        const before = fibers.get(partition)
        const run = before === undefined ? reader.run : Effect.andThen(Fiber.await(before), reader.run)
        // A defect of the reader's own; what a handler throws stays inside it.
        const reported = Effect.onError(run, (cause) =>
          Effect.sync(() => (Cause.hasInterruptsOnly(cause) ? undefined : fail("consume", Cause.squash(cause))))
        )
        fibers.set(partition, runFork(reported))
      })
      // A pause outlives its generation in kafkajs, and nobody is left who would end it.
      consumer.resume([{ topic: wireTopic }])
    }

    /**
     * When the fetch began that is under way at each broker, and those that were under way when the group was last joined.
     *
     * When a leader moves, kafkajs joins again while fetches of the old generation are under way. It takes a batch of theirs for
     * the next one of the new generation, and what lies between the committed place and that batch is skipped: seen on three
     * nodes, with hundreds of records lost in half a minute. So nothing is taken until the last of these fetches is over.
     */
    const fetching = new Map<number, { readonly beganMillis: number }>()
    const outdated = new Map<number, { readonly beganMillis: number }>()
    const isOutdated = () => {
      const over = Monotonic.millisUnsafe(clock) - longestFetchMillis
      outdated.forEach(({ beganMillis }, node) => (beganMillis < over ? outdated.delete(node) : undefined))
      return outdated.size > 0
    }

    let lastSignMillis = Monotonic.millisUnsafe(clock)
    const sign = () => {
      lastSignMillis = Monotonic.millisUnsafe(clock)
    }
    consumer.on(consumer.events.HEARTBEAT, sign)
    consumer.on(consumer.events.FETCH_START, ({ payload: { nodeId } }) => {
      fetching.set(nodeId, { beganMillis: Monotonic.millisUnsafe(clock) })
      outdated.delete(nodeId)
    })
    consumer.on(consumer.events.FETCH, ({ payload: { nodeId } }) => {
      const fetch = fetching.get(nodeId)
      // Its batches come within this macrotask. (A broker that is gone is not seen to fetch again: waiting for that would be too long.)
      setImmediate(() => {
        if (fetching.get(nodeId) === fetch) fetching.delete(nodeId)
        if (outdated.get(nodeId) === fetch) outdated.delete(nodeId)
      })
    })
    consumer.on(
      consumer.events.GROUP_JOIN,
      guarded(({ payload: { memberAssignment } }) => {
        sign()
        fetching.forEach((fetch, node) => outdated.set(node, fetch))
        // Who stops takes nothing over, and what it had was of the last generation.
        if (stopping) readers.forEach((reader) => reader.lose())
        else assign(memberAssignment[wireTopic] ?? [])
      })
    )
    // Hundreds of requests a second go well: that is said now and then, and at once after one that did not.
    let saidMillis = Number.NEGATIVE_INFINITY
    consumer.on(consumer.events.REQUEST, () => {
      const now = Monotonic.millisUnsafe(clock)
      if (now - saidMillis < sayMillis) return
      saidMillis = now
      runFork(outcome(true))
    })
    consumer.on(consumer.events.REQUEST_TIMEOUT, ({ payload: { broker } }) => {
      saidMillis = Number.NEGATIVE_INFINITY
      // kafkajs would use the connection again, though it may be dead.
      client.reset(broker)
      runFork(outcome(false))
    })
    consumer.on(consumer.events.CRASH, ({ payload: { error } }) => fail("consume", error))
    // A crash tells of itself after these two: only what is no crash is left for them.
    const ended = (what: string) => () =>
      void runFork(
        Effect.andThen(
          Effect.sleep(requestTimeout),
          Effect.sync(() => (stopping ? undefined : fail("consume", new Error(`kafkajs has ${what}`))))
        )
      )
    consumer.on(consumer.events.STOP, ended("stopped"))
    consumer.on(consumer.events.DISCONNECT, ended("disconnected"))

    const eachBatch = async (payload: EachBatchPayload) => {
      const reader = readers.get(payload.batch.partition)
      if (stopping || reader === undefined || reader.isLost() || isOutdated()) {
        // Its offsets are not resolved, so nothing is lost.
        await sleep(refusedPauseMillis)
        return
      }
      guarded(reader.offer)(payload)
    }

    const start = Effect.tryPromise({
      try: async () => {
        await consumer.connect()
        if (stopping) return
        await consumer.subscribe({ topics: [wireTopic], fromBeginning: true })
        // An interrupted start must not join after its consumer has left.
        if (stopping) return
        joined = consumer.run({
          autoCommit: false,
          eachBatchAutoResolve: false,
          partitionsConsumedConcurrently: concurrency,
          eachBatch
        })
        joined.catch(() => {})
        await joined
      },
      catch: (cause) => cause
    }).pipe(Effect.catch((cause) => Effect.sync(() => fail("join", cause))))

    const watch = Effect.sleep(watchMillis).pipe(
      Effect.andThen(
        Effect.sync(() => {
          const silentMillis = Monotonic.millisUnsafe(clock) - lastSignMillis
          if (silentMillis > silenceMillis)
            fail("consume", new Error(`kafkajs gave no sign of life for ${Math.round(silentMillis)} ms`))
        })
      ),
      Effect.forever
    )
    return yield* Effect.raceFirst(
      Effect.andThen(start, Effect.never),
      Effect.raceFirst(watch, Deferred.await(failed))
    ).pipe(Effect.tapError((error) => outcome(error._tag !== "BrokerUnavailable")))
  })

  const consume = <E, R>(
    options: ConsumeOptions,
    handle: (slice: Slice) => Effect.Effect<void, E, R>
  ): Effect.Effect<never, BrokerUnavailable | TopicUnavailable, R> =>
    Effect.scoped(session(options, handle)) as Effect.Effect<never, BrokerUnavailable | TopicUnavailable, R>

  return { consume }
})
