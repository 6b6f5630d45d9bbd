import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { endToEnd, type TopicRecord } from "./EndToEnd.ts"

endToEnd(
  "embedded broker",
  Effect.succeed({
    env: {},
    readTopic: Effect.fnUntraced(function* () {
      const sql = yield* SqlClient.SqlClient
      return yield* Effect.orDie(sql<TopicRecord>`
      SELECT record_key AS key, convert_from(record_value, 'UTF8') AS value, record_headers AS headers, partition,
             record_offset AS "offset"
      FROM broker_log WHERE topic = 'orders' ORDER BY partition, record_offset`)
    })
  })
)
