/**
 * Sets groups back to the first record of their topic: after their marks were restored from a backup, they have to read it again.
 *
 * Kafka forgets the group. A group that it does not know starts at the first record.
 *
 * kafkajs' `resetOffsets` would join the group. A command that is killed there leaves a member, and the next one waits until its session is over.
 */
import { Clock, Effect } from "effect"
import { ask, withAdmin } from "./KafkaAdmin.ts"
import { KafkaSettings, makeClients } from "./KafkaClient.ts"
import * as KafkaErrors from "./KafkaErrors.ts"

/** A group that some member still reads in, or did a session ago. */
export interface BusyGroup {
  /** Its name at the broker. */
  readonly group: string
  /** Each with the host that it runs on. */
  readonly members: ReadonlyArray<string>
}

/** The broker's error for the group, inside the error of the whole request. */
const refusalOf = (cause: unknown): unknown =>
  cause instanceof Error && "groups" in cause && Array.isArray(cause.groups)
    ? (cause.groups as ReadonlyArray<{ readonly error?: unknown }>)[0]?.error
    : cause

/** Each of these groups reads the topic from its first record, except those that are returned: Kafka refuses a group that has members. */
export const rewind = Effect.fn("KafkaRewind.rewind")(function* (groups: ReadonlyArray<string>, topic: string) {
  const { access = {}, prefix } = yield* KafkaSettings
  const { toUnavailable } = KafkaErrors.make(access, yield* Clock.Clock)
  const admins = withAdmin(yield* makeClients)
  /** The group that Kafka is asked about. */
  let group = ""
  return yield* admins((admin) =>
    Effect.gen(function* () {
      const busy: Array<BusyGroup> = []
      for (const name of groups) {
        group = prefix + name
        const refusal = yield* Effect.matchEffect(
          ask(() => admin.deleteGroups([group])),
          {
            onSuccess: () => Effect.succeed(undefined),
            onFailure: (cause) => Effect.succeed(refusalOf(cause))
          }
        )
        if (refusal === undefined || KafkaErrors.isProtocolError(refusal, "GROUP_ID_NOT_FOUND")) continue
        if (!KafkaErrors.isProtocolError(refusal, "NON_EMPTY_GROUP")) return yield* Effect.fail(refusal)
        const described = yield* ask(() => admin.describeGroups([group]))
        const members = described.groups.flatMap((one) => one.members)
        busy.push({
          group,
          members: members.map(({ clientHost, memberId }) => `${memberId} at ${clientHost.replace(/^\//, "")}`)
        })
      }
      return busy
    })
  ).pipe(
    Effect.mapError((cause) =>
      toUnavailable("rewind", topic, { operation: "Delete", topic: prefix + topic, group }, cause)
    )
  )
})
