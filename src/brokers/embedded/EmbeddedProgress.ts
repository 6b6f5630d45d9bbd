/** How far groups have read the embedded broker's topics. It needs the database alone, so a command asks beside the service's processes. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"
import * as SlotOwners from "../../platform/SlotOwners.ts"
import { BrokerUnavailable, TopicUnavailable } from "../Broker.ts"
import { GroupProgress } from "../GroupProgress.ts"
import { memberGroup } from "./EmbeddedLog.ts"

/** A statement of some milliseconds. A longer wait means a database that hangs. */
const askMillis = 3_000

const partitions = Rows.all(
  Schema.Struct({
    partition: Schema.Int,
    end: Schema.BigInt,
    committed: Schema.NullOr(Schema.BigInt)
  })
)

/** See {@link GroupProgress}. Records that retention has dropped before they were read still count as lag. */
export const layer: Layer.Layer<GroupProgress, never, PgClient.PgClient> = Layer.effect(
  GroupProgress,
  Effect.map(PgClient.PgClient, (client) =>
    GroupProgress.of({
      of: Effect.fn("EmbeddedProgress.of")(function* (group, topic) {
        const ask = Effect.all([
          // A reader that takes a partition over notes the offset 0, and no commit is so low.
          partitions(client`
            SELECT p.partition, p.next_offset AS "end", nullif(o.next_offset, 0) AS committed
            FROM broker_partitions AS p
            LEFT JOIN broker_offsets AS o ON o.consumer_group = ${group} AND o.topic = p.topic AND o.partition = p.partition
            WHERE p.topic = ${topic} ORDER BY p.partition`),
          Effect.provideService(SlotOwners.of(memberGroup(group, topic)), SqlClient.SqlClient, client)
        ])
        const [found, owners] = yield* ask.pipe(
          Effect.timeout(askMillis),
          Effect.mapError((cause) => new BrokerUnavailable({ operation: "progress", cause }))
        )
        if (found.length === 0) return yield* new TopicUnavailable({ topic, reason: "it does not exist" })
        return found.map(({ committed, end, partition }) => ({
          partition,
          end,
          committed,
          lag: Number(end - (committed ?? 0n)),
          owner: owners.get(partition) ?? null
        }))
      })
    })
  )
)
