/**
 * Pauses failed partitions: after a failure the dispatcher neither fetches nor sends for the partition until its pause is over, and then tries it with
 * one send. The rules are in PauseRules.ts.
 *
 * Decorates {@link Queue}, {@link Publisher} and {@link Holds}. Without it every round sends to what is away, and each of those sends may take as
 * long as a send may; its lanes' other topics wait as long.
 */
import { Context, Effect, Layer } from "effect"
import { Holds } from "../outbox/holds/Holds.ts"
import type { Lane } from "../outbox/Lane.ts"
import { Looks } from "../outbox/Looks.ts"
import { Publisher } from "../outbox/Publisher.ts"
import { type Fetched, type LaneView, Queue } from "../outbox/Queue.ts"
import { ControlSettings } from "../platform/ControlConnection.ts"
import * as Monotonic from "../platform/Monotonic.ts"
import * as PauseRules from "./PauseRules.ts"

/** The full-jitter backoff of a partition that can't be reached. */
export const PauseSettings = Context.Reference<{
  readonly backoffBaseMillis: number
  readonly backoffCapMillis: number
}>("paid-once/guards/PauseSettings", {
  // A broker that comes back is noticed within half a minute, or later if very many partitions wait for an attempt. A broker that stays away
  // costs next to nothing.
  defaultValue: () => ({ backoffBaseMillis: 100, backoffCapMillis: 30_000 })
})

const leavingOut = <A extends LaneView>(view: A, topics: ReadonlyArray<string>): A =>
  topics.length === 0 ? view : { ...view, withoutTopics: [...(view.withoutTopics ?? []), ...topics] }

export class PartitionPauses extends Context.Service<
  PartitionPauses,
  {
    /** Topics whose last send failed, in one of their partitions at least, for health. */
    readonly all: PauseRules.PauseRules["all"]
    /** Topics that are not to be sent to from the lane now. */
    readonly runningIn: PauseRules.PauseRules["runningIn"]
    /** How long nothing was reached, of what is sent to; 0 where nothing has failed. */
    readonly strandedMillis: PauseRules.PauseRules["strandedMillis"]
    /** What has failed is tried again at once. */
    readonly release: PauseRules.PauseRules["release"]
  }
>()("paid-once/guards/PartitionPauses") {
  static readonly layer: Layer.Layer<
    PartitionPauses | Queue | Publisher | Holds,
    never,
    Queue | Publisher | Holds | Looks
  > = Layer.effectContext(
    Effect.gen(function* () {
      const queue = yield* Queue
      const publisher = yield* Publisher
      const holds = yield* Holds
      const looks = yield* Looks
      const { backoffBaseMillis, backoffCapMillis } = yield* PauseSettings
      const { sessionTimeoutMillis } = yield* ControlSettings
      const rules = yield* PauseRules.make({
        baseMillis: backoffBaseMillis,
        capMillis: backoffCapMillis,
        // A send takes less than a session's silence may (Config.ts), as a rule some seconds.
        forgottenAfterMillis: Math.max(60_000, 2 * sessionTimeoutMillis),
        // What is held waits for pauses, too.
        onChange: Effect.andThen(looks.now, holds.changed.open)
      })

      /** A look comes when the next pause ends, and sees to the one after it: there is one ahead as long as any pause runs. */
      const lookAtNextEnd = Effect.flatMap(rules.nextEndMillis, (millis) =>
        millis === undefined ? Effect.void : looks.after(millis)
      )

      /** Runs a send or a look at a topic, unless the place is paused, and notes whether it was reached. A refusal is an answer, too. */
      const attempt = Effect.fnUntraced(function* <A, E extends PauseRules.SendError>(
        topic: string,
        place: PauseRules.Place | undefined,
        send: Effect.Effect<A, E>
      ) {
        const sentMillis = yield* Monotonic.millis
        const reached = Effect.suspend(() => rules.end(topic, place, sentMillis))
        return yield* rules.attempt(
          topic,
          place,
          send.pipe(
            Effect.tap(() => reached),
            Effect.tapError((error) =>
              error._tag === "MessageRejected"
                ? reached
                : Effect.andThen(rules.begin(topic, place, error, sentMillis), lookAtNextEnd)
            )
          )
        )
      })

      const views = <A extends LaneView>(all: ReadonlyArray<A>) =>
        Effect.forEach(all, (view) => Effect.map(rules.runningIn(view.lane), (topics) => leavingOut(view, topics)))

      /**
       * Which failed partitions this fetch is to try: those that have waited longest, as far as there is room, and one topic of a lane. By lane, the
       * topic to try and those to leave out.
       */
      const choose = Effect.fnUntraced(function* (lanes: ReadonlyArray<Lane>) {
        const failed = yield* Effect.forEach(lanes, (lane) =>
          Effect.map(rules.failedIn(lane), (places) => places.map((place) => ({ ...place, lane })))
        )
        const triable = failed
          .flat()
          .filter(({ waitMillis }) => waitMillis === 0)
          .toSorted((one, other) => one.seenMillis - other.seenMillis)
        const chosen = new Map<Lane, string>()
        const places = new Set<string>()
        for (const { lane, place, topic } of triable) {
          const key = `${topic}/${place?.partition}`
          if (chosen.has(lane) || (!places.has(key) && places.size >= rules.room())) yield* rules.waitFor(topic, place)
          else {
            chosen.set(lane, topic)
            places.add(key)
          }
        }
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
          ready: (all) => Effect.andThen(lookAtNextEnd, Effect.flatMap(views(all), queue.ready)),
          fetch: Effect.fnUntraced(function* (parts) {
            const choices = yield* choose(parts.map(({ lane }) => lane))
            if (choices.size === 0) return yield* queue.fetch(parts)
            const first = yield* queue.fetch(
              parts.map((part) => leavingOut(part, choices.get(part.lane)?.others ?? []))
            )
            // The backlog of a topic that is to be tried may fill its lane's part: what is behind it of healthy topics is not to wait for the attempt.
            const hidden = first.filter(
              ({ events, isCut, lane }) => isCut && events.some(({ topic }) => topic === choices.get(lane)?.toTry)
            )
            const behind = new Map(
              (hidden.length === 0
                ? []
                : yield* queue.fetch(
                    parts
                      .filter(({ lane }) => hidden.some((one) => one.lane === lane))
                      .map((part) => leavingOut(part, choices.get(part.lane)?.failed ?? []))
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
              // A failure of a topic whose partitions are known is one of the partition that is sent to.
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
