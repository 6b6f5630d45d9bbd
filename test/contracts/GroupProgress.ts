/** The contract of `GroupProgress` as tests, for every broker that tells it: `progressContract("KafkaBroker", harness)` runs them. */
import { assert, layer } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { eventually } from "../support/Counters.ts"
import { BrokerHarness, type Member, newMember, newTopic, numbers, publish, read, within } from "./BrokerHarness.ts"

const testTimeoutMillis = 120_000

const progressOf = (member: Member, group: string, topic: string) =>
  member.progress === undefined
    ? Effect.die(new Error("this harness has members without progress"))
    : Effect.orDie(member.progress.of(group, topic))

export const progressContract = (name: string, harness: Layer.Layer<BrokerHarness>): void =>
  layer(harness, { excludeTestServices: true, timeout: "120 seconds" })(
    `${name} tells the progress of groups`,
    (it) => {
      it.effect(
        "of a group that never was: no offset, no owner, and all records to read",
        () =>
          Effect.gen(function* () {
            const member = yield* newMember
            const { group, topic } = yield* newTopic(member, 2)
            yield* publish(member, topic, numbers(0, 3), 1)
            assert.deepStrictEqual(yield* progressOf(member, group, topic), [
              { partition: 0, end: 0n, committed: null, lag: 0, owner: null },
              { partition: 1, end: 3n, committed: null, lag: 3, owner: null }
            ])
          }),
        testTimeoutMillis
      )

      it.effect(
        "of a group that reads: its offsets, what is left, and who reads each partition; its offsets stay when it leaves",
        () =>
          Effect.gen(function* () {
            const member = yield* newMember
            const { group, topic } = yield* newTopic(member, 2)
            yield* publish(member, topic, numbers(0, 5), 0)
            yield* publish(member, topic, numbers(0, 2), 1)
            // Commits all but the records of partition 1.
            const reader = yield* read(member, { topic, group }, { commits: ({ partition }) => partition === 0 })
            yield* reader.take(7)
            yield* eventually(
              "the commit, and an owner of each partition",
              Effect.map(
                progressOf(member, group, topic),
                (all) => all[0]?.committed === 5n && all.every(({ owner }) => owner !== null)
              )
            )
            const [first, second] = yield* progressOf(member, group, topic)
            assert.include(first, { partition: 0, end: 5n, committed: 5n, lag: 0 })
            assert.include(second, { partition: 1, end: 2n, committed: null, lag: 2 })
            assert.strictEqual(first?.owner, second?.owner)

            yield* reader.stop
            yield* publish(member, topic, numbers(5, 4), 0)
            yield* eventually(
              "the group to be empty",
              Effect.map(progressOf(member, group, topic), (all) => all.every(({ owner }) => owner === null))
            )
            assert.include((yield* progressOf(member, group, topic))[0], { end: 9n, committed: 5n, lag: 4 })
          }),
        testTimeoutMillis
      )

      it.effect(
        "an outage is an error within seconds, and no figure",
        () =>
          Effect.gen(function* () {
            const member = yield* newMember
            const { group, topic } = yield* newTopic(member)
            const { progress } = member
            assert.isDefined(progress)
            yield* member.kill
            const error = yield* within("an answer", Effect.flip(progress.of(group, topic)))
            assert.strictEqual(error._tag, "BrokerUnavailable")
          }),
        testTimeoutMillis
      )

      it.effect(
        "a topic that is not there is said to be missing",
        () =>
          Effect.gen(function* () {
            const member = yield* newMember
            const error = yield* Effect.flip(member.progress!.of("nobody", "contract-missing"))
            assert.strictEqual(error._tag, "TopicUnavailable")
          }),
        testTimeoutMillis
      )
    }
  )
