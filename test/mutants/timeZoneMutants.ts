/** Mistakes that read a time or a day in the time zone of the session. Test databases have a zone far from UTC. */
import type { Mutant } from "./mutants.ts"

const retentionTest = "test/operations/RetentionHours.test.ts"

export const timeZoneMutants: ReadonlyArray<Mutant> = [
  {
    name: "revenue-by-local-day",
    breaks: "revenue is counted on the day of the database's time zone",
    file: "src/application/subscribers/Analytics.ts",
    find: "(occurred_at AT TIME ZONE 'UTC')::date",
    replace: "occurred_at::date",
    seenBy: { file: "test/application/subscribers/Analytics.test.ts", test: "revenue counts on the UTC day" }
  },
  {
    name: "captures-from-local-midnight",
    breaks: "captures of the hours after midnight in UTC are missing in the report of their day",
    file: "src/application/tasks/Report.ts",
    find: `captured_at >= \${day}::timestamp AT TIME ZONE 'UTC'`,
    replace: `captured_at >= \${day}::timestamptz`,
    seenBy: { file: "test/application/Report.test.ts", test: "a day of a report begins and ends with the UTC day" }
  },
  {
    name: "captures-to-local-midnight",
    breaks: "captures of the hours after midnight in UTC are in the reports of two days",
    file: "src/application/tasks/Report.ts",
    find: `captured_at < (\${day}::timestamp + interval '1 day') AT TIME ZONE 'UTC'`,
    replace: `captured_at < \${day}::timestamptz + interval '1 day'`,
    seenBy: { file: "test/application/Report.test.ts", test: "a day of a report begins and ends with the UTC day" }
  },
  {
    name: "refunds-from-local-midnight",
    breaks: "refunds of the hours after midnight in UTC are missing in the report of their day",
    file: "src/application/tasks/Report.ts",
    find: `refunded_at >= \${day}::timestamp AT TIME ZONE 'UTC'`,
    replace: `refunded_at >= \${day}::timestamptz`,
    seenBy: { file: "test/application/Report.test.ts", test: "a day of a report begins and ends with the UTC day" }
  },
  {
    name: "refunds-to-local-midnight",
    breaks: "refunds of the hours after midnight in UTC are in the reports of two days",
    file: "src/application/tasks/Report.ts",
    find: `refunded_at < (\${day}::timestamp + interval '1 day') AT TIME ZONE 'UTC'`,
    replace: `refunded_at < \${day}::timestamptz + interval '1 day'`,
    seenBy: { file: "test/application/Report.test.ts", test: "a day of a report begins and ends with the UTC day" }
  },
  {
    name: "report-as-of-local-time",
    breaks: "a report tells a wrong moment as that of its figures",
    file: "src/application/tasks/Report.ts",
    find: "to_char(clock_now() AT TIME ZONE 'UTC'",
    replace: "to_char(clock_now()",
    seenBy: { file: "test/application/Report.test.ts", test: "a day of a report begins and ends with the UTC day" }
  },
  {
    name: "report-reads-local-time",
    breaks: "a report tells a wrong moment as that of its figures",
    file: "src/application/Reports.ts",
    find: "to_char(as_of AT TIME ZONE 'UTC'",
    replace: "to_char(as_of",
    seenBy: { file: "test/application/Report.test.ts", test: "the same days are one report" }
  },
  {
    name: "partitions-of-local-days",
    breaks: "for hours of each day the partition of a day is made too late, or not yet",
    file: "src/operations/DailyPartitions.ts",
    find: "(clock_now() AT TIME ZONE 'UTC')::date + n AS day",
    replace: "clock_now()::date + n AS day",
    seenBy: { file: "test/operations/UtcDays.test.ts", test: "partitions are made by the UTC day" }
  },
  {
    name: "partitions-begin-at-local-midnight",
    breaks: "a day's partition begins hours beside the day that it is named after",
    file: "migrations/mechanism/0102_ids.sql",
    find: "(extract(epoch FROM day) * 1000)",
    replace: "(extract(epoch FROM day::timestamptz) * 1000)",
    seenBy: { file: "test/operations/UtcDays.test.ts", test: "partitions are made by the UTC day" }
  },
  {
    name: "retention-in-local-days",
    breaks: "in the week after a change to summer time what upkeep deletes goes an hour early",
    file: "src/platform/Retention.ts",
    find: `make_interval(hours => 24 * \${retentionDays}::int4)`,
    replace: `make_interval(days => \${retentionDays}::int4)`,
    seenBy: { file: "test/operations/UtcDays.test.ts", test: "a day is kept for its retention and an hour" }
  },
  {
    name: "log-retention-in-local-days",
    breaks: "in the week after a change to summer time the embedded broker drops records an hour early",
    file: "src/brokers/embedded/EmbeddedLog.ts",
    find: "make_interval(hours => 24 * ${retentionDays}::int4) AS oldest_kept",
    replace: "make_interval(days => ${retentionDays}::int4) AS oldest_kept",
    seenBy: { file: retentionTest, test: "a record of the embedded broker" }
  },
  {
    name: "key-retention-in-local-days",
    breaks: "in the week after a change to summer time a request's key is forgotten an hour early",
    file: "src/application/Idempotency.ts",
    find: "interval '24 hours'",
    replace: "interval '1 day'",
    seenBy: { file: retentionTest, test: "an idempotency key" }
  },
  {
    name: "sends-local-time",
    breaks: "every event is sent with a time that is hours beside the one at which it occurred",
    file: "src/outbox/EventRows.ts",
    find: "to_char(${table}.occurred_at AT TIME ZONE 'UTC'",
    replace: "to_char(${table}.occurred_at",
    seenBy: { file: "test/outbox/Times.test.ts", test: "the queue, the history and a replay" }
  },
  {
    name: "timeline-in-local-time",
    breaks: "a timeline shows when its events occurred in the database's zone, as if it were UTC",
    file: "src/operations/History.ts",
    find: `to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "occurredAt",
                   json_build_object(`,
    replace: `to_char(occurred_at, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "occurredAt",
                   json_build_object(`,
    seenBy: { file: "test/outbox/Times.test.ts", test: "the queue, the history and a replay" }
  },
  {
    name: "published-in-local-time",
    breaks: "a timeline shows when its events were published in the database's zone, as if it were UTC",
    file: "src/operations/History.ts",
    find: "to_char(published_at AT TIME ZONE 'UTC'",
    replace: "to_char(published_at",
    seenBy: { file: "test/outbox/Times.test.ts", test: "the queue, the history and a replay" }
  },
  {
    name: "replays-local-time",
    breaks: "a replay shows when its events occurred in the database's zone, as if it were UTC",
    file: "src/operations/History.ts",
    find: `to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "occurredAt",
                   trace_id`,
    replace: `to_char(occurred_at, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "occurredAt",
                   trace_id`,
    seenBy: { file: "test/outbox/Times.test.ts", test: "the queue, the history and a replay" }
  },
  {
    name: "retries-local-time",
    breaks: "an event that was refused once is sent with a time that is hours beside the one at which it occurred",
    file: "src/outbox/EventRows.ts",
    find: `to_char(\${table}.occurred_at AT TIME ZONE 'UTC'`,
    replace: `to_char(\${table}.occurred_at`,
    seenBy: { file: "test/outbox/Times.test.ts", test: "a refused event keeps the time" }
  },
  {
    name: "reports-local-time",
    breaks: "an operator reads times of the database's zone as if they were UTC",
    file: "src/platform/IsoTime.ts",
    find: `to_char(\${expression} AT TIME ZONE 'UTC'`,
    replace: `to_char(\${expression}`,
    seenBy: { file: "test/outbox/Times.test.ts", test: "a refused event keeps the time" }
  },
  {
    name: "refused-in-local-time",
    breaks: "an operator reads when an event was refused in the database's zone, as if it were UTC",
    file: "src/outbox/holds/Parking.ts",
    find: "to_char(clock_now() AT TIME ZONE 'UTC'",
    replace: "to_char(clock_now()",
    seenBy: { file: "test/outbox/Times.test.ts", test: "a refused event keeps the time" }
  },
  {
    name: "inbox-reports-local-time",
    breaks: "an operator reads the next attempt of a held event in the database's zone, as if it were UTC",
    file: "src/operations/reports/InboxReport.ts",
    find: 'isoTime("e.next_attempt_at")',
    replace: `"to_char(e.next_attempt_at, 'YYYY-MM-DD\\"T\\"HH24:MI:SS.MS\\"Z\\"')"`,
    seenBy: { file: "test/inbox/Times.test.ts", test: "the times of a held event's failures" }
  },
  {
    name: "inbox-failures-in-local-time",
    breaks: "an operator reads when an event failed in the database's zone, as if it were UTC",
    file: "src/inbox/holds/HeldRows.ts",
    find: "to_char(clock_now() AT TIME ZONE 'UTC'",
    replace: "to_char(clock_now()",
    seenBy: { file: "test/inbox/Times.test.ts", test: "the times of a held event's failures" }
  },
  {
    name: "task-in-local-time",
    breaks: "a task's times are those of the database's zone, as if they were UTC",
    file: "src/platform/IsoTime.ts",
    find: `to_char(\${expression} AT TIME ZONE 'UTC'`,
    replace: `to_char(\${expression}`,
    seenBy: { file: "test/application/Times.test.ts", test: "a task tells when" }
  },
  {
    name: "order-created-in-local-time",
    breaks: "an order shows when it was placed in the database's zone, as if it were UTC",
    file: "src/application/Orders.ts",
    find: `to_char(o.created_at AT TIME ZONE 'UTC', '\${isoFormat}') AS "createdAt",
               to_char`,
    replace: `to_char(o.created_at, '\${isoFormat}') AS "createdAt",
               to_char`,
    seenBy: { file: "test/application/Times.test.ts", test: "an order tells when" }
  },
  {
    name: "placed-order-in-local-time",
    breaks: "the answer to a new order shows when it was placed in the database's zone, as if it were UTC",
    file: "src/application/Orders.ts",
    find: "to_char(created_at AT TIME ZONE 'UTC'",
    replace: "to_char(created_at",
    seenBy: { file: "test/application/Times.test.ts", test: "an order tells when" }
  },
  {
    name: "order-updated-in-local-time",
    breaks: "an order shows when it was changed in the database's zone, as if it were UTC",
    file: "src/application/Orders.ts",
    find: "to_char(o.updated_at AT TIME ZONE 'UTC'",
    replace: "to_char(o.updated_at",
    seenBy: { file: "test/application/Times.test.ts", test: "an order tells when" }
  },
  {
    name: "locked-order-in-local-time",
    breaks: "the answer to a change shows when the order was placed in the database's zone, as if it were UTC",
    file: "src/application/Orders.ts",
    find: `to_char(o.created_at AT TIME ZONE 'UTC', '\${isoFormat}') AS "createdAt", to_char`,
    replace: `to_char(o.created_at, '\${isoFormat}') AS "createdAt", to_char`,
    seenBy: { file: "test/application/Times.test.ts", test: "an order tells when" }
  },
  {
    name: "changed-order-in-local-time",
    breaks: "the answer to a change shows when it was made in the database's zone, as if it were UTC",
    file: "src/application/Orders.ts",
    find: `to_char(clock_now() AT TIME ZONE 'UTC', '\${isoFormat}')`,
    replace: `to_char(clock_now(), '\${isoFormat}')`,
    seenBy: { file: "test/application/Times.test.ts", test: "an order tells when" }
  }
]
