/**
 * The live stream of the overview: one loop reads for all who listen, and each listener gets the same bytes.
 *
 * **The beat.** While somebody listens, the overview is read every other second, or more seldom where a read takes long. When the last listener has
 * gone, reading goes on for some seconds, so that a page that reconnects has missed nothing. After that nothing is read.
 *
 * **The history** is that of this process's memory. What was paid and published while nobody listened is filled in from the database, when somebody
 * begins to look. The rest has a gap, and the chart shows one. Figures of this process alone would be wrong as soon as a second process works. Metrics are kept
 * elsewhere (docs/operations.md).
 *
 * **Ids** are the time of a sample in milliseconds, by the database's clock. So they still mean the same at another process, and after a restart.
 */
import { Cause, Context, Effect, Latch, Layer, Metric, Queue, type Scope, Stream } from "effect"
import type { Sample } from "../../application/views/StatusView.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import * as Supervised from "../../platform/Supervised.ts"
import { Readiness } from "../Health.ts"
import { Problem } from "../Problems.ts"
import { Overviews } from "./Overviews.ts"

/** See {@link LiveStream}. */
export const LiveStreamSettings = Context.Reference<{
  /** Between two reads. A person does not see more, and a chart of a quarter of an hour has a point for each pixel. */
  readonly beatMillis: number
  /** A read takes at most this share of the time: under a backlog that is slow to count, the page is renewed more seldom. */
  readonly maxReadShare: number
  /** A stream is silent for at most so long: the usual proxies cut a connection that is silent for a minute. */
  readonly heartbeatMillis: number
  /** How long reading goes on without a listener: a page comes back after {@link retryMillis}. */
  readonly lingerMillis: number
  /** Each holds a connection of at most a thousand. More people than this don't watch one process. */
  readonly maxListeners: number
}>("paid-once/http/LiveStreamSettings", {
  defaultValue: () => ({
    beatMillis: 2_000,
    maxReadShare: 0.05,
    heartbeatMillis: 15_000,
    lingerMillis: 10_000,
    maxListeners: 100
  })
})

/** What a page is told to wait before it reconnects. */
const retryMillis = 2_000

/** A quarter of an hour: what is older belongs to the metrics' history. */
const historyMillis = 900_000

/** The chart joins points up to this distance (src/console/chart.js). */
const gapMillis = 15_000

/** A person on call does not wait longer for the past. */
const pastTimeoutMillis = 2_000

/** A read that takes longer than this hangs. */
const readTimeoutMillis = 10_000

/** Beats that wait for a listener that does not read, beside those that the sockets hold. Then its connection is closed. */
const maxUnread = 8

/** While the database is away, it is tried again at least so often. */
const troubleCapMillis = 5_000

/** The loop stamps its progress this often while nobody listens. */
const napMillis = Supervised.stuckAfterMillis / 4

const listenersGauge = Metric.gauge("admin_stream_listeners", { description: "Pages that listen to the live stream" })
const readSeconds = Metric.histogram("admin_stream_read_seconds", {
  description: "Time of one read for all listeners",
  boundaries: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
})
const closedTotal = Metric.counter("admin_stream_closed_total", {
  description: "Listeners whose connection was closed, because they did not read",
  incremental: true
})

/** A connection that listens. */
export interface Connection {
  /** Cuts it. */
  readonly cut: () => void
  /** Ends when the listener may not listen any more, for example with its session. */
  readonly ended: Effect.Effect<void>
}

interface Listener extends Connection {
  readonly queue: Queue.Queue<Uint8Array, Cause.Done>
}

const encoder = new TextEncoder()
const frame = (event: string, data: unknown, id?: number): string =>
  `${id === undefined ? "" : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`
const heartbeat = encoder.encode(": still here\n\n")
const bye = encoder.encode(frame("bye", {}))

const tooMany = (maxListeners: number) =>
  new Problem({
    status: 429,
    detail: `${maxListeners} pages listen to this process already: close one, or try again later`,
    headers: { "retry-after": String(retryMillis / 1_000) }
  })

export class LiveStream extends Context.Service<
  LiveStream,
  {
    /** The events for a new listener, after the sample `after`. Fails with 429 where there are too many listeners. */
    readonly listen: (
      connection: Connection,
      after: number | undefined
    ) => Effect.Effect<Stream.Stream<Uint8Array>, Problem>
    /** The last sample, unless it is older than a page would show. */
    readonly lastSample: Effect.Effect<Sample | null>
  }
>()("paid-once/http/LiveStream") {
  static readonly layer: Layer.Layer<LiveStream, never, Overviews | Readiness | Supervised.Fibers> = Layer.effect(
    LiveStream,
    Effect.gen(function* () {
      const { beatMillis, heartbeatMillis, lingerMillis, maxListeners, maxReadShare } = yield* LiveStreamSettings
      const overviews = yield* Overviews
      const readiness = yield* Readiness
      const context = yield* Effect.context()
      const listeners = new Set<Listener>()
      const wanted = yield* Latch.make(false)
      /** Samples as they were sent, oldest first. */
      let history: ReadonlyArray<{ readonly id: number; readonly sample: Sample }> = []
      let lastOverview: { readonly frame: string; readonly atMillis: number } | undefined
      let lastLeftMillis = Number.NEGATIVE_INFINITY
      let isOver = false
      let sentSinceHeartbeat = false

      const showListeners = Effect.suspend(() => Metric.update(listenersGauge, listeners.size))
      const end = ({ queue }: Listener) => {
        Queue.offerUnsafe(queue, bye)
        Queue.endUnsafe(queue)
      }
      const send = (bytes: Uint8Array) => {
        sentSinceHeartbeat = true
        for (const listener of listeners) {
          if (Queue.offerUnsafe(listener.queue, bytes)) continue
          listeners.delete(listener)
          listener.cut()
          closedTotal.updateUnsafe(1, context)
        }
      }

      const pastOf = (since: number, until: number) =>
        overviews.past(since, until).pipe(
          Effect.map((samples) => samples.filter(({ id }) => id > since && id < until)),
          Effect.timeout(pastTimeoutMillis),
          // The charts then begin now, as they do where the database remembers nothing.
          Effect.catchCause((cause) =>
            Effect.as(Effect.logWarning("the past of the charts can't be read", cause), [] as ReadonlyArray<Sample>)
          )
        )

      const beat = Effect.gen(function* () {
        const { overview, sample } = yield* overviews.read
        const now = yield* Monotonic.millis
        // The clock of a database that was replaced may be behind.
        const id = Math.max(sample.id, (history.at(-1)?.id ?? 0) + 1)
        const numbered = { ...sample, id }
        const since = Math.max(history.at(-1)?.id ?? 0, id - historyMillis)
        const past = id - since <= gapMillis ? [] : yield* pastOf(since, id)
        const added = [...past, numbered].map((one) => ({ id: one.id, sample: one }))
        history = [...history.filter((one) => one.id > id - historyMillis), ...added]
        lastOverview = { frame: frame("overview", { ...overview, rates: numbered }), atMillis: now }
        send(encoder.encode(added.map((one) => frame("sample", one.sample, one.id)).join("") + lastOverview.frame))
      })

      const isWanted = Effect.map(
        Monotonic.millis,
        (now) => !isOver && (listeners.size > 0 || now - lastLeftMillis < lingerMillis)
      )

      yield* Supervised.forkLoop(
        "live stream",
        (stamp) =>
          Effect.gen(function* () {
            // Closed before the look: a listener that comes after it opens the latch again.
            yield* wanted.close
            if (!(yield* isWanted)) {
              yield* Effect.raceFirst(wanted.await, Effect.forever(Effect.andThen(Effect.sleep(napMillis), stamp)))
            }
            const began = yield* Monotonic.millis
            yield* beat.pipe(
              Effect.timeout(readTimeoutMillis),
              Effect.tapCause((cause) =>
                Cause.hasInterruptsOnly(cause)
                  ? Effect.void
                  : Effect.map(overviews.trouble, (trouble) => send(encoder.encode(frame("trouble", trouble))))
              )
            )
            const took = (yield* Monotonic.millis) - began
            yield* Metric.update(readSeconds, took / 1_000)
            yield* Effect.sleep(Math.max(beatMillis - took, took / maxReadShare))
          }),
        { restartCapMillis: troubleCapMillis }
      )
      // Apart from the beat, which may hang. It only fills queues, and can't fail.
      yield* Effect.sync(() => {
        if (!sentSinceHeartbeat) send(heartbeat)
        sentSinceHeartbeat = false
      }).pipe(Effect.delay(heartbeatMillis), Effect.forever, Effect.forkScoped)
      // A stream has no end of its own, and a stop waits for what is under way.
      yield* readiness.draining.pipe(
        Effect.andThen(
          Effect.sync(() => {
            isOver = true
            for (const listener of listeners) end(listener)
          })
        ),
        Effect.forkScoped
      )
      yield* Metric.update(listenersGauge, 0)
      yield* Metric.value(closedTotal)
      yield* Metric.value(readSeconds)

      /** All that a new listener has missed, and the last overview, if it is not older than the next one will be. */
      const opening = (after: number | undefined, now: number) => {
        const missed = history.filter(({ id }) => after === undefined || id > after)
        const isFresh = lastOverview !== undefined && now - lastOverview.atMillis < 2 * beatMillis
        return [
          `retry: ${retryMillis}\n\n`,
          ...missed.map(({ id, sample }) => frame("sample", sample, id)),
          ...(isFresh ? [lastOverview!.frame] : [])
        ].join("")
      }

      const join = (connection: Connection, after: number | undefined): Effect.Effect<Listener, never, Scope.Scope> =>
        Effect.acquireRelease(
          Effect.gen(function* () {
            const queue = yield* Queue.dropping<Uint8Array, Cause.Done>(maxUnread)
            const listener: Listener = { ...connection, queue }
            const now = yield* Monotonic.millis
            yield* Effect.sync(() => {
              // In one step: no sample falls between the history and the queue.
              Queue.offerUnsafe(queue, encoder.encode(opening(after, now)))
              // A server that stops admits nobody; and the check before the answer may have let in one too many.
              if (isOver || listeners.size >= maxListeners) end(listener)
              else listeners.add(listener)
            })
            yield* Effect.andThen(wanted.open, showListeners)
            return listener
          }),
          (listener) =>
            Effect.gen(function* () {
              if (listeners.delete(listener) && listeners.size === 0) lastLeftMillis = yield* Monotonic.millis
              yield* showListeners
            })
        )

      const listen = Effect.fnUntraced(function* (connection: Connection, after: number | undefined) {
        if (listeners.size >= maxListeners) return yield* tooMany(maxListeners)
        // Joined when the answer's body begins: a request of HEAD has none.
        return Stream.unwrap(
          Effect.gen(function* () {
            const listener = yield* join(connection, after)
            yield* Effect.forkScoped(
              Effect.andThen(
                connection.ended,
                Effect.sync(() => end(listener))
              )
            )
            return Stream.fromQueue(listener.queue)
          })
        )
      })

      return LiveStream.of({
        listen,
        lastSample: Effect.map(Monotonic.millis, (now) =>
          lastOverview !== undefined && now - lastOverview.atMillis < lingerMillis
            ? (history.at(-1)?.sample ?? null)
            : null
        )
      })
    })
  )
}
