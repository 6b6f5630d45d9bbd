/** The doctor's checks of tasks: due ones are taken, failing ones wait, and those with side effects have an idempotency key. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { HoldSettings as InboxHoldSettings } from "../../inbox/holds/ParkedHolds.ts"
import { HoldSettings } from "../../outbox/holds/Parking.ts"
import * as Backoff from "../../platform/Backoff.ts"
import { lasting } from "../../platform/Lasting.ts"
import { countOf } from "../../platform/Plural.ts"
import * as Rows from "../../platform/Rows.ts"
import { TaskSettings } from "../../tasks/TaskSettings.ts"
import { priorities } from "../../tasks/TaskType.ts"
import { type Check, psql, told } from "./Check.ts"

const group = "tasks"

/** A due task is claimed within a second; a busy pool of workers makes it wait for others' ends. */
const oldSeconds = 300

const waiting = Rows.all(Schema.Struct({ type: Schema.String, seconds: Schema.Finite }))
const leasesRow = Rows.one(Schema.Struct({ expired: Schema.Int }))

const dueOnes = (types: ReadonlyArray<string>): Check<SqlClient.SqlClient> => ({
  group,
  name: "tasks-move",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    // The first entry of each type and level in outbox_tasks_due.
    const due = yield* waiting(sql`
      SELECT t.type, extract(epoch FROM clock_now() - min(first.execute_at))::float8 AS seconds
      FROM unnest(${[...types]}::text[]) AS t(type)
      CROSS JOIN generate_series(${priorities.lowest}::int4, ${priorities.highest}::int4) AS level(priority)
      CROSS JOIN LATERAL (SELECT execute_at FROM outbox_tasks AS o
        WHERE o.state IN ('pending', 'failed') AND o.task_type = t.type AND o.priority = level.priority ORDER BY execute_at, seq LIMIT 1) AS first
      WHERE NOT EXISTS (SELECT FROM operator_pauses AS p WHERE p.kind = 'task type' AND p.name = t.type)
      GROUP BY t.type`)
    const { expired } = yield* leasesRow(sql`
      SELECT count(*)::int4 AS expired FROM (
        SELECT FROM outbox_tasks WHERE state = 'processing' AND lease_until < clock_now() - interval '1 minute' LIMIT 1000) AS lost`)
    const worker = {
      fix: "Start a process with the role workers",
      command: "PORT=0 npm run paid-once -- serve --roles workers"
    }
    return told("due tasks are taken, and leases are alive", [
      ...due
        .filter(({ seconds }) => seconds > oldSeconds)
        .map(({ seconds, type }) => ({
          ...worker,
          problem: `a task ${type} is due for ${lasting(seconds)}, and no worker takes it`
        })),
      ...(expired === 0
        ? []
        : [
            {
              ...worker,
              problem: `${countOf(expired, "lease")} ended more than a minute ago: the worker is gone, and none runs its tasks again`
            }
          ])
    ])
  })
})

/** Failing tasks of a type that are looked at. */
const failingLimit = 1_000

const failingTypes = Rows.all(
  Schema.Struct({ type: Schema.String, failing: Schema.Int, seconds: Schema.Finite, error: Schema.String })
)

/** A task that has failed and is tried again is no news. For how long it has failed tells how long its dependency has been away. */
const failingForLong = (types: ReadonlyArray<string>): Check<SqlClient.SqlClient> => ({
  group,
  name: "tasks-succeed",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const found = yield* failingTypes(sql`
      SELECT f.task_type AS type, count(*)::int4 AS failing, max(extract(epoch FROM clock_now() - f.since))::float8 AS seconds,
             (array_agg(f.last_error ORDER BY f.since))[1] AS error
      FROM unnest(${[...types]}::text[]) AS t(type)
      CROSS JOIN LATERAL (SELECT task_type, last_error, (history -> 0 ->> 'at')::timestamptz AS since FROM outbox_tasks AS o
        WHERE o.state = 'failed' AND o.task_type = t.type AND o.last_error IS NOT NULL LIMIT ${failingLimit}) AS f
      GROUP BY f.task_type ORDER BY 1`)
    return told(
      "no task has failed for long",
      found
        .filter(({ seconds }) => seconds > oldSeconds)
        .map(({ error, failing, seconds, type }) => ({
          problem: `${countOf(failing, "task")} of ${type} waiting for another try, the oldest has failed for ${lasting(seconds)}: ${error}`,
          fix: "Read the error of each, and mend its cause; what is not tried any more becomes a dead letter",
          command: `npm run paid-once -- tasks list --type ${type} --status retrying`
        }))
    )
  })
})

const failingRow = Rows.one(Schema.Struct({ failing: Schema.Int, atOnce: Schema.Int }))

/** A delay is jittered, and by chance a single one of an outage may be short. */
const atOnceMillis = 50

/** Retries that are over sooner see no dependency recover. */
const leastPatienceMillis = 60_000

const backoff = (types: ReadonlyArray<string>): Check<SqlClient.SqlClient> => ({
  group,
  name: "backoff",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { retryDelaysMillis } = yield* TaskSettings
    const outbox = yield* HoldSettings
    const inbox = yield* InboxHoldSettings
    const { atOnce, failing } = yield* failingRow(sql`
      SELECT count(*)::int4 AS failing,
             count(*) FILTER (WHERE execute_at < (history -> -1 ->> 'at')::timestamptz + ${atOnceMillis} * interval '1 millisecond')::int4 AS "atOnce"
      FROM (SELECT execute_at, history FROM outbox_tasks
            WHERE state IN ('pending', 'failed') AND task_type = ANY (${[...types]}::text[]) AND history <> '[]' LIMIT ${failingLimit}) AS f`)
    const patience = retryDelaysMillis.reduce((sum, millis) => sum + millis, 0)
    const setting = (name: string, millis: number) => ({
      problem: `${name} lets retries end within ${lasting(millis / 1_000)}: what a dependency refuses in a short outage becomes a dead letter`,
      fix: `Set ${name} to longer waits, or take it away for the default`,
      command: null
    })
    return told(
      `${failing === 0 ? "no task fails" : `${countOf(failing, "task")} fail and wait`}; retries take ${lasting(patience / 1_000)}`,
      [
        ...(atOnce * 2 > failing
          ? [
              {
                problem: `${atOnce} of ${countOf(failing, "failing task")} are tried again at once: what is down gets no rest`,
                fix: "Give the task type retryDelaysMillis, or TASK_RETRY_DELAYS longer waits",
                command: "npm run paid-once -- tasks list --status retrying"
              }
            ]
          : []),
        ...(patience < leastPatienceMillis ? [setting("TASK_RETRY_DELAYS", patience)] : []),
        ...[
          { name: "OUTBOX_RETRY_BASE_MILLIS", ...outbox },
          { name: "INBOX_RETRY_BASE_MILLIS", ...inbox }
        ]
          .map(({ maxAttempts, name, retryBaseMillis }) => ({
            name,
            millis: Backoff.holdTotalMillis(retryBaseMillis, maxAttempts)
          }))
          .filter(({ millis }) => millis < leastPatienceMillis)
          .map(({ millis, name }) => setting(name, millis))
      ]
    )
  })
})

const keylessRows = Rows.all(Schema.Struct({ type: Schema.String, count: Schema.Int }))

/** The newest tasks, which tell of the code that runs now. */
const newestLimit = 1_000

/** A task whose effect Postgres can't roll back is made once for what asks for it, and so has a key. */
const keys = (typesWithSideEffects: ReadonlyArray<string>): Check<SqlClient.SqlClient> => ({
  group,
  name: "idempotency-keys",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const keyless = yield* keylessRows(sql`
      SELECT task_type AS type, count(*)::int4 AS count
      FROM (SELECT task_type, idempotency_key FROM outbox_tasks ORDER BY task_id DESC LIMIT ${newestLimit}) AS newest
      WHERE idempotency_key IS NULL AND task_type = ANY (${[...typesWithSideEffects]}::text[]) GROUP BY 1 ORDER BY 1`)
    return told(
      `the newest tasks of ${typesWithSideEffects.join(" and ")} have one each`,
      keyless.map(({ count, type }) => ({
        problem: `${countOf(count, "task")} ${type} of the newest have no idempotency key: whoever asks twice has its effect twice`,
        fix: "Enqueue it with an idempotencyKey that is made of what asks for it: the event's id, or the aggregate's",
        command: psql(
          `SELECT task_id, enqueued_at, payload FROM outbox_tasks WHERE task_type = '${type}' AND idempotency_key IS NULL ORDER BY task_id DESC LIMIT 10`
        )
      }))
    )
  })
})

/** `types` are all task types, and those of `withSideEffects` do what Postgres can't roll back. */
export const checks = (options: {
  readonly types: ReadonlyArray<string>
  readonly withSideEffects: ReadonlyArray<string>
}): ReadonlyArray<Check<SqlClient.SqlClient>> => [
  dueOnes(options.types),
  failingForLong(options.types),
  backoff(options.types),
  keys(options.withSideEffects)
]
