/** How far groups have read Kafka's topics. */
import { Clock, Effect, Layer } from "effect"
import kafkajs, { type Admin } from "kafkajs"
import { GroupProgress } from "../GroupProgress.ts"
import { ask, withKeptAdmin } from "./KafkaAdmin.ts"
import { KafkaSettings, makeClients } from "./KafkaClient.ts"
import * as KafkaErrors from "./KafkaErrors.ts"

/** Three requests of milliseconds, and a connection. Whoever asks shows "unknown" after that. */
const askMillis = 5_000

/** The members of a group, by the partitions of the topic that each reads. A member that speaks another protocol is passed over. */
const ownersOf = (admin: Admin, group: string, wireTopic: string) =>
  Effect.map(
    ask(() => admin.describeGroups([group])),
    ({ groups }) => {
      const owners = new Map<number, string>()
      for (const { clientHost, memberAssignment, memberId } of groups.flatMap(({ members }) => members)) {
        if (memberAssignment.length === 0) continue
        const assigned = kafkajs.AssignerProtocol.MemberAssignment.decode(memberAssignment)
        for (const partition of assigned?.assignment[wireTopic] ?? []) {
          owners.set(partition, `${memberId} at ${clientHost.replace(/^\//, "")}`)
        }
      }
      return owners
    }
  )

/** See {@link GroupProgress}. Records that retention has dropped before they were read do not count as lag. Questions share a client. */
export const layer: Layer.Layer<GroupProgress, never, KafkaSettings> = Layer.effect(
  GroupProgress,
  Effect.gen(function* () {
    const { access = {}, prefix } = yield* KafkaSettings
    const { toUnavailable } = KafkaErrors.make(access, yield* Clock.Clock)
    const admins = yield* withKeptAdmin(yield* makeClients)

    return GroupProgress.of({
      of: Effect.fn("KafkaProgress.of")((group, topic) => {
        const [wireGroup, wireTopic] = [prefix + group, prefix + topic]
        return admins((admin) =>
          Effect.gen(function* () {
            const ends = yield* ask(() => admin.fetchTopicOffsets(wireTopic))
            const [offsets] = yield* ask(() => admin.fetchOffsets({ groupId: wireGroup, topics: [wireTopic] }))
            const owners = yield* ownersOf(admin, wireGroup, wireTopic)
            const committed = new Map(
              (offsets?.partitions ?? []).map(({ offset, partition }) => [partition, BigInt(offset)])
            )
            return ends
              .map(({ high, low, partition }) => {
                // -1: the group has committed nothing, and starts at the beginning.
                const offset = committed.get(partition) ?? -1n
                const from = offset < BigInt(low) ? BigInt(low) : offset
                return {
                  partition,
                  end: BigInt(high),
                  committed: offset < 0n ? null : offset,
                  // A record may have come, and been read, between the two questions.
                  lag: Math.max(0, Number(BigInt(high) - from)),
                  owner: owners.get(partition) ?? null
                }
              })
              .toSorted((one, other) => one.partition - other.partition)
          })
        ).pipe(
          Effect.timeout(askMillis),
          Effect.mapError((cause) =>
            toUnavailable("progress", topic, { operation: "Describe", topic: wireTopic, group: wireGroup }, cause)
          )
        )
      })
    })
  })
)
