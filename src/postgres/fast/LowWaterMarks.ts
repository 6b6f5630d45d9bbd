/**
 * Starts the queue's statements at each lane's low-water mark: a lower bound of `seq` that LowWaterMarkRounds.ts finds.
 *
 * Decorates the {@link Queue}. Without it every statement is correct, but slow under a reader that blocks vacuum, or in a long outage.
 */
import { Context, Effect, Layer, Stream } from "effect"
import { SqlClient } from "effect/sql"
import { allLanes, type Lane } from "../../outbox/Lane.ts"
import { LaneOwnership } from "../../outbox/LaneOwnership.ts"
import { type LaneView, Queue } from "../../outbox/Queue.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import * as Supervised from "../../platform/Supervised.ts"
import * as LowWaterMarkRounds from "./LowWaterMarkRounds.ts"

/** The interval between rounds. Meanwhile a lane's dead entries pile up: some eighty at 5,000 events/s. */
const raiseMillis = 1_000

const noTopics: ReadonlyArray<string> = []

/** A topic counts as paused until this long after a view last left it out: longer than the longest pause. */
const leftOutMillis = 60_000

export class LowWaterMarks extends Context.Service<
  LowWaterMarks,
  {
    /** Runs one round for the lanes, about once a second. `topicsOf` gives the paused topics, by default those that views left out. */
    readonly raise: (
      lanes: ReadonlyArray<Lane>,
      topicsOf?: (lane: Lane) => ReadonlyArray<string>
    ) => Effect.Effect<void>
    /** Resets the marks of lanes that this process has lost. */
    readonly forget: (lanes: Iterable<Lane>) => Effect.Effect<void>
  }
>()("paid-once/postgres/LowWaterMarks") {
  /** Starts the queue's statements at the marks. */
  static readonly layerQueue: Layer.Layer<Queue | LowWaterMarks, never, Queue | SqlClient.SqlClient> =
    Layer.effectContext(
      Effect.gen(function* () {
        const queue = yield* Queue
        const marks = LowWaterMarkRounds.make(yield* SqlClient.SqlClient)
        const leftOut = new Map<Lane, Map<string, number>>()
        const remember = (views: ReadonlyArray<LaneView>) =>
          Effect.map(Monotonic.millis, (now) => {
            for (const { lane, withoutTopics = [] } of views) {
              if (withoutTopics.length === 0) continue
              const times = leftOut.get(lane) ?? new Map<string, number>()
              leftOut.set(lane, times)
              for (const topic of withoutTopics) times.set(topic, now)
            }
          })
        /** Of each lane, as its last statement had it: they change once a second, and a look asks for all. */
        const last: Array<NonNullable<LaneView["from"]>> = []
        const fromOf = ({ lane, withoutTopics = noTopics }: LaneView, server: string) => {
          const seq = marks.of(lane, withoutTopics)
          const known = last[lane]
          return known !== undefined && known.seq === seq && known.server === server
            ? known
            : (last[lane] = { seq, server })
        }
        const from = <A extends LaneView>(views: ReadonlyArray<A>): ReadonlyArray<A> => {
          const server = marks.server()
          return server === "" ? views : views.map((view) => ({ ...view, from: fromOf(view, server) }))
        }
        return Context.make(
          Queue,
          Queue.of({
            ready: (views) =>
              Effect.andThen(
                remember(views),
                Effect.suspend(() => queue.ready(from(views)))
              ),
            fetch: (parts, without) => Effect.suspend(() => queue.fetch(from(parts), without)),
            mark: (runs) =>
              Effect.suspend(() => {
                marks.died()
                return queue.mark(runs)
              }),
            pending: (views) => Effect.suspend(() => queue.pending(from(views)))
          })
        ).pipe(
          Context.add(
            LowWaterMarks,
            LowWaterMarks.of({
              raise: (lanes, topicsOf) =>
                Effect.flatMap(Monotonic.millis, (now) => {
                  for (const [lane, times] of leftOut) {
                    for (const [topic, millis] of times) if (millis + leftOutMillis <= now) times.delete(topic)
                    if (times.size === 0) leftOut.delete(lane)
                  }
                  const known = (lane: Lane) => [...(leftOut.get(lane)?.keys() ?? [])].toSorted()
                  return Effect.orDie(marks.raise(lanes, topicsOf ?? known))
                }),
              forget: (lanes) => Effect.sync(() => marks.forget(lanes))
            })
          )
        )
      })
    )

  /** Raises the marks of this process's lanes, and resets those of the others. */
  static readonly layerRaising: Layer.Layer<never, never, LowWaterMarks | LaneOwnership | Supervised.Fibers> =
    Layer.effectDiscard(
      Effect.gen(function* () {
        const marks = yield* LowWaterMarks
        const ownership = yield* LaneOwnership
        yield* Effect.forkScoped(
          Stream.runForEach(ownership.changes, (held) => marks.forget(allLanes.filter((lane) => !held.includes(lane))))
        )
        yield* Supervised.forkLoop(
          "low-water marks",
          Effect.andThen(
            Effect.flatMap(ownership.held, (lanes) => marks.raise(lanes)),
            Effect.sleep(raiseMillis)
          )
        )
      })
    )
}
