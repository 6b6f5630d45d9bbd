/**
 * Pauses failed partitions. After a failure the dispatcher neither fetches nor sends for the partition until its pause is over, and then tries it
 * with one send. PauseRules.ts has the rules.
 *
 * Decorates {@link Queue}, {@link Publisher} and {@link Holds}. Without it every round sends to unreachable partitions. Each such send may take as
 * long as its time limit, and the other topics of its lanes wait for it.
 */
import { Clock, Context, Effect, Layer } from "effect"
import { Holds } from "../outbox/holds/Holds.ts"
import type { Lane } from "../outbox/Lane.ts"
import { PollRequests } from "../outbox/PollRequests.ts"
import { Publisher } from "../outbox/Publisher.ts"
import { type Fetched, type LaneView, Queue } from "../outbox/Queue.ts"
import { ControlSettings } from "../platform/ControlConnection.ts"
import * as Backoff from "../platform/Backoff.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import * as PauseRules from "./PauseRules.ts"

/** The full-jitter backoff of a partition that can't be reached. */
export const PauseSettings = Context.Reference<{
  readonly backoffBaseMillis: number
  readonly backoffCapMillis: number
}>("paid-once/guards/PauseSettings", {
  // A recovered broker is noticed within half a minute, or later if very many partitions wait for an attempt. An unreachable one costs next to nothing.
  defaultValue: () => ({
    backoffBaseMillis: Backoff.partitionPauseBaseMillis,
    backoffCapMillis: Backoff.partitionPauseCapMillis
  })
})

/** The view without these topics. */
export const leavingOut = <A extends LaneView>(view: A, topics: ReadonlyArray<string>): A =>
  topics.length === 0 ? view : { ...view, withoutTopics: [...(view.withoutTopics ?? []), ...topics] }

export class PartitionPauses extends Context.Service<
  PartitionPauses,
  {
    /** Topics with at least one partition whose last send failed, for health. */
    readonly all: PauseRules.PauseRules["all"]
    /** Topics to which nothing is sent from the lane now. */
    readonly runningIn: PauseRules.PauseRules["runningIn"]
    /** How long no send has reached anything; 0 if nothing has failed. */
    readonly strandedMillis: PauseRules.PauseRules["strandedMillis"]
    /** Ends all pauses at once. */
    readonly release: PauseRules.PauseRules["release"]
  }
>()("paid-once/guards/PartitionPauses") {
  static readonly layer: Layer.Layer<
    PartitionPauses | Queue | Publisher | Holds,
    never,
    Queue | Publisher | Holds | PollRequests
  > = Layer.effectContext(
    Effect.gen(function* () {
      const queue = yield* Queue
      const publisher = yield* Publisher
      const holds = yield* Holds
      const pollRequests = yield* PollRequests
      const { backoffBaseMillis, backoffCapMillis } = yield* PauseSettings
      const { sessionTimeoutMillis } = yield* ControlSettings
      const clock = yield* Clock.Clock
      const rules = yield* PauseRules.make({
        baseMillis: backoffBaseMillis,
        capMillis: backoffCapMillis,
        // A send takes some seconds as a rule, and less than the session timeout (Config.ts).
        forgottenAfterMillis: Math.max(60_000, 2 * sessionTimeoutMillis),
        // Held events wait for pauses, too.
        onChange: Effect.andThen(pollRequests.now, holds.changed.open)
      })

      /** Requests a poll at the end of the next pause. That poll requests the one after it, so no pause ends unnoticed. */
      const pollAtNextEnd = Effect.flatMap(rules.nextEndMillis, (millis) =>
        millis === undefined ? Effect.void : pollRequests.after(millis)
      )

      /** Runs a send or a metadata request, unless the place is paused, and notes whether it was reached. A refusal counts as reached. */
      const attempt = <A, E extends PauseRules.SendError>(
        topic: string,
        place: PauseRules.Place | undefined,
        send: Effect.Effect<A, E>
      ) =>
        Effect.suspend(() => {
          const sentMillis = Monotonic.millisUnsafe(clock)
          const reached = Effect.suspend(() => rules.end(topic, place, sentMillis))
          return rules.attempt(
            topic,
            place,
            send.pipe(
              Effect.tap(() => reached),
              Effect.tapError((error) =>
                error._tag === "MessageRejected"
                  ? reached
                  : Effect.andThen(rules.begin(topic, place, error, sentMillis), pollAtNextEnd)
              )
            )
          )
        })

      /** The last turn of each partition that was chosen for a probe. */
      const turns = new Map<string, number>()
      let turn = 0

      const views = <A extends LaneView>(all: ReadonlyArray<A>) =>
        Effect.forEach(all, (view) => Effect.map(rules.runningIn(view.lane), (topics) => leavingOut(view, topics)))

      /**
       * Chooses the failed partitions that this fetch probes: as far as there is room, one topic per lane, and those first whose last turn is longest ago.
       * Whether something was sent does not matter: a partition without events would keep its turn for ever.
       * Returns for each lane the topic to probe and the topics to leave out.
       */
      const choose = Effect.fnUntraced(function* (lanes: ReadonlyArray<Lane>) {
        const failed = yield* Effect.forEach(lanes, (lane) =>
          Effect.map(rules.failedIn(lane), (places) => places.map((place) => ({ ...place, lane })))
        )
        const triable = failed
          .flat()
          .filter(({ waitMillis }) => waitMillis === 0)
          .map((one) => ({ ...one, key: `${one.topic}\0${one.place?.partition}` }))
          .toSorted((one, other) => (turns.get(one.key) ?? 0) - (turns.get(other.key) ?? 0))
        const chosen = new Map<Lane, string>()
        const places = new Set<string>()
        for (const { key, lane, place, topic } of triable) {
          if (chosen.has(lane) || (!places.has(key) && places.size >= rules.room())) yield* rules.waitFor(topic, place)
          else {
            chosen.set(lane, topic)
            places.add(key)
          }
        }
        for (const key of places) turns.set(key, ++turn)
        return new Map(
          failed.flatMap((of) => {
            const [first] = of
            if (first === undefined) return []
            const toTry = chosen.get(first.lane)
            const topics = [...new Set(of.map(({ topic }) => topic))]
            return [[first.lane, { toTry, failed: topics, others: topics.filter((topic) => topic !== toTry) }]]
          })
        )
      })

      return Context.make(
        Queue,
        Queue.of({
          ...queue,
          ready: (all) => Effect.andThen(pollAtNextEnd, Effect.flatMap(views(all), queue.ready)),
          fetch: Effect.fnUntraced(function* (parts, without) {
            if (!rules.hasFailures()) return yield* queue.fetch(parts, without)
            const choices = yield* choose(parts.map(({ lane }) => lane))
            if (choices.size === 0) return yield* queue.fetch(parts, without)
            const first = yield* queue.fetch(
              parts.map((part) => leavingOut(part, choices.get(part.lane)?.others ?? [])),
              without
            )
            // The backlog of a probed topic may fill its lane's part. A second fetch finds the healthy topics behind it, so they don't wait.
            const hidden = first.filter(
              ({ events, isCut, lane }) => isCut && events.some(({ topic }) => topic === choices.get(lane)?.toTry)
            )
            const behind = new Map(
              (hidden.length === 0
                ? []
                : yield* queue.fetch(
                    parts
                      .filter(({ lane }) => hidden.some((one) => one.lane === lane))
                      .map((part) => leavingOut(part, choices.get(part.lane)?.failed ?? [])),
                    without
                  )
              ).map((fetched) => [fetched.lane, fetched])
            )
            return first.map((fetched): Fetched => {
              const toTry = choices.get(fetched.lane)?.toTry
              if (toTry === undefined) return fetched
              const healthy = behind.get(fetched.lane)
              return {
                ...fetched,
                events: [
                  ...(healthy?.events ?? fetched.events.filter(({ topic }) => topic !== toTry)),
                  ...fetched.events.filter(({ topic }) => topic === toTry)
                ]
              }
            })
          })
        })
      ).pipe(
        Context.add(
          Publisher,
          Publisher.of({
            ...publisher,
            prepare: (topic) =>
              // If the topic's partitions are known, a failure belongs to the partition of the send.
              publisher.partitionsOf(topic) === undefined
                ? attempt(topic, undefined, publisher.prepare(topic))
                : publisher.prepare(topic),
            publish: (batch) =>
              attempt(batch.topic, { partition: batch.partition, count: batch.partitions }, publisher.publish(batch))
          })
        ),
        Context.add(
          Holds,
          Holds.of({
            ...holds,
            due: (all) => Effect.flatMap(views(all), holds.due),
            nextDue: Effect.fnUntraced(function* (lanes) {
              const next = yield* holds.nextDue(lanes)
              return yield* Effect.forEach(next, (one) =>
                Effect.map(rules.failedIn(one.lane), (places) => {
                  const waits = places.filter(({ topic }) => topic === one.topic).map(({ waitMillis }) => waitMillis)
                  return { ...one, waitMillis: Math.max(one.waitMillis, ...waits) }
                })
              )
            })
          })
        ),
        Context.add(
          PartitionPauses,
          PartitionPauses.of({
            all: rules.all,
            runningIn: rules.runningIn,
            strandedMillis: rules.strandedMillis,
            release: rules.release
          })
        )
      )
    })
  )
}
