/** The doctor's check of a database that is behind its topic: it was restored from a backup, and the topic was not (docs/restore.md). */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { GroupProgress } from "../../brokers/GroupProgress.ts"
import type { TopicReader } from "../../brokers/TopicReader.ts"
import { ordersTopic } from "../../domain/Events.ts"
import { type Check, notChecked, told } from "../../operations/doctor/Check.ts"
import { QueueSettings } from "../../outbox/Queue.ts"
import { countOf } from "../../platform/Plural.ts"
import * as Rows from "../../platform/Rows.ts"
import * as TopicRecords from "../rollforward/TopicRecords.ts"
import { standingsOf } from "../rollforward/Unknown.ts"

const group = "topics"
const name = "database-behind-topic"

/** In the place of {@link check} where the topic is in the database. */
export const embedded: Check = {
  group,
  name,
  run: Effect.succeed(told("the embedded broker is in the database: a backup has both of one moment"))
}

const newestRows = Rows.all(Schema.Struct({ partition: Schema.Int, newest: Schema.BigInt, isWhole: Schema.Boolean }))

/** The newest events of the archive have the newest offsets of each partition. */
const newestLimit = 10_000

/** A record is archived within milliseconds of its acknowledgement. */
const markMillis = 4_000

/** A topic of some ten thousand records is read in this time; a larger one is not read to its end. */
const readMillis = 12_000

/**
 * Whether the archive has the last record of each partition, and the newest ones before it without a gap. A gap may be the second copy of an event whose
 * acknowledgement was lost, or an event that the database has never known: only the topic tells.
 */
const isArchived = (ends: ReadonlyMap<number, bigint>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const rows = yield* newestRows(sql`
      SELECT broker_partition AS partition, max(broker_offset) AS newest,
             max(broker_offset) - min(broker_offset) + 1 = count(DISTINCT broker_offset) AS "isWhole"
      FROM (SELECT broker_partition, broker_offset FROM event_log WHERE topic = ${ordersTopic} ORDER BY event_id DESC LIMIT ${newestLimit}) AS l
      GROUP BY broker_partition`)
    const newest = new Map(rows.map((row) => [row.partition, row.newest]))
    return (
      rows.every(({ isWhole }) => isWhole) &&
      [...ends].every(([partition, end]) => end - 1n <= (newest.get(partition) ?? -1n))
    )
  })

export const check: Check<TopicReader | GroupProgress | SqlClient.SqlClient> = {
  group,
  name,
  // The fixes of other checks start processes: on a restored database they would charge customers again.
  mendFirst: true,
  run: Effect.gen(function* () {
    const { archive } = yield* QueueSettings
    const found = yield* Effect.result(GroupProgress.use(({ of }) => of("doctor", ordersTopic)))
    if (found._tag === "Failure") return notChecked(`the broker does not tell: ${found.failure.message}`)
    const ends = new Map(found.success.map(({ end, partition }) => [partition, end]))
    const isKnown = archive
      ? Effect.flatMap(isArchived(ends), (known) =>
          known ? Effect.succeed(true) : Effect.delay(isArchived(ends), markMillis)
        )
      : Effect.succeed(false)
    if (yield* isKnown) return told("the archive has the last records of each partition")

    let [missing, read] = [0, 0]
    const behind = new Set<string>()
    const collisions = new Set<string>()
    const reading = TopicRecords.forEachSlice(ordersTopic, (records) =>
      Effect.map(standingsOf(records), (standings) => {
        read += records.length
        for (const [index, { envelope }] of records.entries()) {
          if (standings[index] === "missing") {
            missing += 1
            behind.add(envelope.aggregateId)
          }
          if (standings[index] === "collision") collisions.add(envelope.aggregateId)
        }
      })
    )
    const isRead = yield* reading.pipe(
      Effect.as(true),
      Effect.timeoutOrElse({ duration: readMillis, orElse: () => Effect.succeed(false) })
    )
    if (!isRead && missing + collisions.size === 0) {
      return notChecked(
        `the topic has more than ${countOf(read, "record")}, and was not read to its end in ${readMillis / 1_000} s`
      )
    }
    const [first] = behind
    const [used] = collisions
    return told(`the database knows the events of ${countOf(read, "record")}`, [
      ...(first === undefined
        ? []
        : [
            {
              problem: `the database is behind its topic: ${countOf(missing, "event")} of ${countOf(behind.size, "order")} are there and not here, the first of order ${first}. It was restored from a backup, and customers may be charged again`,
              fix: "Start nothing on it, stop what runs, and roll it forward (docs/restore.md)",
              command: "npm run paid-once -- roll-forward --dry-run"
            }
          ]),
      ...(used === undefined
        ? []
        : [
            {
              problem: `${countOf(collisions.size, "order")} have used a version for another event than the topic has, the first ${used}: the service ran on a database that was behind its topic`,
              fix: "Stop the service, and decide about each order (docs/restore.md)",
              command: `npm run paid-once -- events search --order ${used}`
            }
          ])
    ])
  })
}
