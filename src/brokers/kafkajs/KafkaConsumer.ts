/**
 * Consuming from Kafka. kafkajs is the member of the group and fetches, and nothing else: it never waits for a slice.
 *
 * **Why slices are not handled in `eachBatch`**
 *
 * kafkajs fetches from a broker only after all batches of its last fetch are handled. A slice that fails or takes long would hold up the
 * other partitions, and in the end the heartbeats. So `eachBatch` hands each batch to its partition's reader (KafkaReader.ts) and
 * returns. A reader that holds enough pauses its partition. Nothing is ever thrown into kafkajs, and heartbeats go out however long a
 * slice takes.
 */
import { Clock, Deferred, Effect, FiberSet, type Scope } from "effect"
import type { Consumer, EachBatchPayload } from "kafkajs"
import { setTimeout as sleep } from "node:timers/promises"
import * as Grace from "../../platform/Grace.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import { BrokerUnavailable, type ConsumeOptions, type Slice, type TopicUnavailable } from "../Broker.ts"
import * as KafkaAssignment from "./KafkaAssignment.ts"
import { type Clients, close, KafkaSettings } from "./KafkaClient.ts"
import * as KafkaErrors from "./KafkaErrors.ts"
import * as KafkaOffsets from "./KafkaOffsets.ts"

/**
 * How long a broker holds a fetch that finds nothing; it responds at once when a record arrives. This bounds only how soon a partition
 * is fetched again after a pause, and how soon a consumer can leave. Four idle requests a second cost nothing.
 */
const maxWaitMillis = 250

/** A member learns of a rebalance by its heartbeat, so this is how long the other members wait for it. */
const heartbeatMillis = 1_000

/** The most bytes of a partition in one fetch: a few slices of ordinary events. */
const maxFetchBytes = 1_048_576

/** How soon new partitions of a topic are seen, at one small request in half a minute. kafkajs' default is five minutes. */
const metadataMillis = 30_000

/** A connection is replaced when a request has no response for so long. That must be before the session is over. */
const requestTimeoutMillis = 5_000

/**
 * kafkajs' retries of joining and fetching last some eight seconds: a quick restart of a broker, after which the member is still known.
 * A restarted member joins under a new id, and the group waits until the old one has been silent for a session.
 */
const retry = { retries: 10, initialRetryTime: 100, maxRetryTime: 1_000 }

/** The time that kafkajs adds to the rebalance timeout before it gives up a join. */
const joinSlackMillis = 5_000

/** How often the consumer checks that kafkajs is alive. */
const watchMillis = 1_000

/** The requests of a client that has not proved who it is. */
const beforeAccess: ReadonlySet<string> = new Set(["ApiVersions", "SaslHandshake", "SaslAuthenticate"])

/** How often a healthy broker is reported. Soon enough for a start whose last report was an outage. */
const reportMillis = 100

/** How long a consumer that ends waits for the slices in flight. A slice takes milliseconds; one that is cut off is delivered again. */
const finishGraceMillis = 5_000

/** Leaving takes one fetch's wait and one request. A join in flight is waited for, or the group would wait for a member that is gone. */
const leaveGraceMillis = 5_000

/** The pause after a batch that is not taken. kafkajs fetches it again at once. */
const refusedPauseMillis = 50

/**
 * How many batches of a fetch kafkajs passes on concurrently. Each is followed by a heartbeat, and the next one would wait for that. kafkajs starts
 * this many workers for each fetch, even without work. With 256 they made a third of the allocations of a busy process.
 */
const concurrency = 16

/** Consumers of Kafka topics. `outcome` is told after each exchange whether the broker took part in it. */
export const make = Effect.fnUntraced(function* (
  clients: Clients,
  outcome: (available: boolean) => Effect.Effect<void>
) {
  const { access = {}, prefix, sessionTimeoutMillis } = yield* KafkaSettings
  const { toUnavailable } = KafkaErrors.make(access, yield* Clock.Clock)
  const grace = yield* Grace.make
  const requestTimeout = Math.min(requestTimeoutMillis, Math.ceil(sessionTimeoutMillis / 2))
  // Members rejoin at once, whatever their slices do: a member that has not rejoined after a session's time is gone.
  const rebalanceTimeout = sessionTimeoutMillis
  // The longest silence of a healthy kafkajs: a join that waits for a dead member, between two requests that time out.
  const silenceMillis = rebalanceTimeout + joinSlackMillis + 2 * requestTimeout

  const configOf = (group: string) => ({
    groupId: prefix + group,
    allowAutoTopicCreation: false,
    sessionTimeout: sessionTimeoutMillis,
    rebalanceTimeout,
    heartbeatInterval: Math.min(heartbeatMillis, Math.floor(sessionTimeoutMillis / 3)),
    maxWaitTimeInMs: maxWaitMillis,
    minBytes: 1,
    maxBytesPerPartition: maxFetchBytes,
    metadataMaxAge: metadataMillis,
    // Our records are in no transaction. A foreign one that stays open would keep back all that comes after it.
    readUncommitted: true,
    // A restart by kafkajs would be a second consumer beside the one that the caller starts.
    retry: { ...retry, restartOnFailure: () => Promise.resolve(false) }
  })

  const session = Effect.fnUntraced(function* <E, R>(
    { group, sliceSize, topic }: ConsumeOptions,
    handle: (slice: Slice) => Effect.Effect<void, E, R>
  ): Effect.fn.Return<never, BrokerUnavailable | TopicUnavailable, R | Scope.Scope> {
    const clock = yield* Clock.Clock
    const wireTopic = prefix + topic
    const failed = yield* Deferred.make<never, BrokerUnavailable | TopicUnavailable>()
    const client = clients.open({
      requestTimeoutMillis: requestTimeout,
      retries: retry.retries,
      acceptsPartialMetadata: false
    })
    const consumer: Consumer = client.kafka.consumer(configOf(group))
    let stopping = false
    let crashed = false
    /** Settles when kafkajs has joined or has given up. */
    let joined: Promise<unknown> = Promise.resolve()

    // Finalizers run in reverse order: the slices end, the readers end, the member leaves the group.
    yield* Effect.addFinalizer(() =>
      Effect.suspend(() =>
        close(
          client,
          async () => {
            // After a crash no broker responds: leaving must not wait for that again.
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
      const right = { operation: "Read", topic: wireTopic, group: prefix + group } as const
      Deferred.doneUnsafe(failed, Effect.fail(toUnavailable(operation, topic, right, cause)))
    }
    /** kafkajs calls some listeners in the middle of its loop: nothing may be thrown into it. */
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
    const assignment = KafkaAssignment.make({
      topic,
      wireTopic,
      sliceSize,
      handle,
      offsets,
      runFork,
      onDefect: (cause) => fail("consume", cause)
    })
    yield* Effect.addFinalizer(() =>
      Effect.suspend(() => {
        stopping = true
        return assignment.finish.pipe(
          Effect.andThen(offsets.settled),
          Effect.interruptible,
          Effect.timeoutOption(grace("slices", finishGraceMillis))
        )
      }).pipe(Effect.andThen(Effect.sync(assignment.lose)))
    )

    let lastSignMillis = Monotonic.millisUnsafe(clock)
    const sign = () => {
      lastSignMillis = Monotonic.millisUnsafe(clock)
    }
    consumer.on(consumer.events.HEARTBEAT, sign)
    consumer.on(
      consumer.events.GROUP_JOIN,
      guarded(({ payload: { memberAssignment } }) => {
        sign()
        // A consumer that stops takes no partition over, and its readers belong to the last generation.
        if (stopping) return assignment.lose()
        assignment.assign(memberAssignment[wireTopic] ?? [])
        // kafkajs keeps a pause across generations, and the reader that would end it is gone.
        consumer.resume([{ topic: wireTopic }])
      })
    )

    // Hundreds of requests a second succeed: that is reported now and then, and at once after a request that failed.
    let reportedMillis = Number.NEGATIVE_INFINITY
    consumer.on(consumer.events.REQUEST, ({ payload: { apiName } }) => {
      // A broker answers these also where it refuses the user.
      if (beforeAccess.has(apiName)) return
      const now = Monotonic.millisUnsafe(clock)
      if (now - reportedMillis < reportMillis) return
      reportedMillis = now
      runFork(outcome(true))
    })
    consumer.on(consumer.events.REQUEST_TIMEOUT, ({ payload: { broker } }) => {
      reportedMillis = Number.NEGATIVE_INFINITY
      // kafkajs would use the connection again, although it may be dead.
      client.reset(broker)
      runFork(outcome(false))
    })

    consumer.on(consumer.events.CRASH, ({ payload: { error } }) => fail("consume", error))
    // A crash emits CRASH after these two events. They are failures only where no crash follows.
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
      const reader = assignment.readerOf(payload.batch.partition)
      if (stopping || reader === undefined || reader.isLost()) {
        // Its offsets are not resolved, so kafkajs fetches it again.
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

  /** See `consume` of the contract (Broker.ts). */
  const consume = <E, R>(
    options: ConsumeOptions,
    handle: (slice: Slice) => Effect.Effect<void, E, R>
  ): Effect.Effect<never, BrokerUnavailable | TopicUnavailable, R> =>
    Effect.scoped(session(options, handle)) as Effect.Effect<never, BrokerUnavailable | TopicUnavailable, R>

  return { consume }
})
