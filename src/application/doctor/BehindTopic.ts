/** The doctor's check of a database that is behind its topic: it was restored from a backup, and the topic was not (docs/restore.md). */
import { Effect, Option, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { type TopicRange, TopicReader } from "../../brokers/TopicReader.ts"
import { ordersTopic } from "../../domain/Events.ts"
import { type Check, notChecked, told } from "../../operations/doctor/Check.ts"
import { QueueSettings } from "../../outbox/Queue.ts"
import { countOf, numberOf, plural } from "../../platform/Plural.ts"
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

const knownRows = Rows.all(Schema.Struct({ partition: Schema.Int, unknownFrom: Schema.BigInt, newest: Schema.BigInt }))

/** The newest events of the archive have the newest offsets of each partition. */
const newestLimit = 10_000

/** Of a partition of which the newest events of the archive tell nothing, so many records at its end are compared. Lost events are at the ends. */
const endLimit = 1_000n

/** Some ten thousand records are compared in this time. A healthy system has a few that are to be compared. */
const readMillis = 12_000

/**
 * The end of each partition, from the first offset on that is missing among the newest ones of the archive. A gap may be the second copy of an event whose acknowledgement was lost, or an event that the database has never known: only the topic tells.
 */
const unarchived = Effect.fnUntraced(function* (bounds: ReadonlyArray<TopicRange>) {
  const { archive } = yield* QueueSettings
  const sql = yield* SqlClient.SqlClient
  const rows = archive
    ? yield* knownRows(sql`
        SELECT partition, max(record_offset) AS newest,
               coalesce(min(before + 1) FILTER (WHERE record_offset > before + 1), max(record_offset) + 1) AS "unknownFrom"
        FROM (
          SELECT *, lag(record_offset) OVER (PARTITION BY partition ORDER BY record_offset) AS before
          FROM ((SELECT broker_partition AS partition, broker_offset AS record_offset FROM event_log WHERE topic = ${ordersTopic}
                 ORDER BY event_id DESC LIMIT ${newestLimit})
                UNION ALL
                SELECT broker_partition, broker_offset FROM left_out_events) AS known
        ) AS l
        GROUP BY partition`)
    : []
  const known = new Map(rows.map((row) => [row.partition, row]))
  return bounds.flatMap(({ end, partition, start }): ReadonlyArray<TopicRange> => {
    const found = known.get(partition)
    const last = end - endLimit
    const from =
      found === undefined
        ? last
        : // The archive reaches further than the topic: the service has gone on, or it is another topic.
          found.newest >= end && last < found.unknownFrom
          ? last
          : found.unknownFrom
    return from < end && start < end ? [{ partition, start: from > start ? from : start, end }] : []
  })
})

/** Of the topic that these consumers read. */
export const check = (consumers: ReadonlyArray<string>): Check<TopicReader | SqlClient.SqlClient> => ({
  group,
  name,
  // The fixes of other checks start processes: on a restored database they would charge customers again.
  mendFirst: true,
  run: Effect.gen(function* () {
    const found = yield* Effect.result(TopicReader.use(({ bounds }) => bounds(ordersTopic)))
    if (found._tag === "Failure") return notChecked(`the broker does not tell: ${found.failure.message}`)
    const ranges = yield* unarchived(found.success)
    if (ranges.length === 0) return told("the archive has the last records of each partition")

    let [missing, forgotten, read, wanted] = [0, 0, 0, 0]
    const behind = new Set<string>()
    const collisions = new Set<string>()
    const reading = TopicRecords.forEachSlice(
      ordersTopic,
      (records, { ofAll, read: count }) =>
        Effect.map(standingsOf(records, consumers), (standings) => {
          read += count
          wanted = ofAll
          for (const [index, { stored }] of records.entries()) {
            const standing = standings[index]?.standing
            if (standing === "missing") {
              missing += 1
              behind.add(stored.aggregateId)
            }
            if (standing === "collision") collisions.add(stored.aggregateId)
            if (standing === "forgotten") forgotten += 1
          }
        }),
      ranges
    )
    const outcome = yield* Effect.result(reading.pipe(Effect.timeoutOption(readMillis)))
    const isRead = outcome._tag === "Success" && Option.isSome(outcome.success)
    if (!isRead && missing + collisions.size === 0) {
      return notChecked(
        outcome._tag === "Failure"
          ? `the broker does not tell: ${outcome.failure.message}`
          : `only ${numberOf(read)} of ${countOf(wanted, "record")} that the archive does not have were compared in ${readMillis / 1_000} s`
      )
    }
    const all = found.success.reduce((sum, { end, start }) => sum + Number(end - start), 0)
    const [first] = behind
    const [used] = collisions
    const compared =
      read === all ? countOf(read, "record") : `${numberOf(read)} of ${countOf(all, "record")}, the newest`
    const untold =
      forgotten === 0 ? "" : `; of ${countOf(forgotten, "event")} nothing tells any more whether they are its own`
    return told(`the database knows the events of ${compared}${untold}`, [
      ...(first === undefined
        ? []
        : [
            {
              problem: `the database is behind its topic: ${isRead ? "" : "at least "}${countOf(missing, "event")} of ${countOf(behind.size, "order")} are there and not here, the first of order ${first}. It was restored from a backup, and customers may be charged again. Or DATABASE_URL, KAFKA_BROKERS or KAFKA_PREFIX is another installation's`,
              fix: "Start nothing on it, stop what runs, and roll it forward (docs/restore.md)",
              command: "npm run paid-once -- roll-forward --dry-run"
            }
          ]),
      ...(used === undefined
        ? []
        : [
            {
              problem: `${countOf(collisions.size, "order")} ${plural(collisions.size, "has", "have")} used a version for another event than the topic has, the first ${used}: the service ran on a database that was behind its topic`,
              fix: "Stop the service, and roll it forward: it leaves the topic's events of these orders out (docs/restore.md)",
              command: "npm run paid-once -- roll-forward --dry-run"
            }
          ])
    ])
  })
})
