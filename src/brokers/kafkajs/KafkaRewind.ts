/** Sets groups back to the first record of a topic: after their marks were restored from a backup, they have to read it again. */
import { Clock, Effect } from "effect"
import { ask, withAdmin } from "./KafkaAdmin.ts"
import { KafkaSettings, makeClients } from "./KafkaClient.ts"
import * as KafkaErrors from "./KafkaErrors.ts"

/** Each of these groups, which must have no members, reads the topic from its first record. Kafka refuses a group that is in use. */
export const rewind = Effect.fn("KafkaRewind.rewind")(function* (groups: ReadonlyArray<string>, topic: string) {
  const { access = {}, prefix } = yield* KafkaSettings
  const { toUnavailable } = KafkaErrors.make(access, yield* Clock.Clock)
  const admins = withAdmin(yield* makeClients)
  yield* admins((admin) =>
    Effect.forEach(
      groups,
      (group) => ask(() => admin.resetOffsets({ groupId: prefix + group, topic: prefix + topic, earliest: true })),
      { discard: true }
    )
  ).pipe(
    Effect.mapError((cause) => toUnavailable("rewind", topic, { operation: "Describe", topic: prefix + topic }, cause))
  )
})
