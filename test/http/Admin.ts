/** The service with an operator's token, and requests that carry it. */
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as ApiKeys from "../../src/http/access/ApiKeys.ts"
import { AccessSettings } from "../../src/http/access/Credentials.ts"
import * as HttpServer from "../../src/http/HttpServer.ts"
import { idAt } from "../support/SqlIds.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { type Answer, anyPort, send, underHttpOn } from "./Service.ts"

const token = "the-operators-own-token"

export const service = HttpServer.layer.pipe(
  Layer.provide(Layer.succeed(HttpServer.HttpSettings, anyPort)),
  Layer.provide(Layer.succeed(AccessSettings, { keys: undefined, adminToken: ApiKeys.ofAdmin(token) })),
  Layer.provideMerge(underHttpOn(TestDatabase.layer))
)

/** One request to `/admin${path}` as an operator: a POST where there is a body. */
export const ask = (
  path: string,
  body?: unknown,
  init: { readonly method?: string; readonly headers?: Record<string, string> } = {}
) =>
  Effect.flatMap(HttpServer.BoundAddress, ({ url }) =>
    send(`${url}/admin${path}`, {
      ...init,
      ...(body === undefined ? {} : { body }),
      headers: { authorization: `Bearer ${token}`, ...init.headers }
    })
  )

/** Decisions in the audit about this thing. */
export const audited = (subjectId: string) =>
  Effect.map(ask(`/audit?subjectId=${encodeURIComponent(subjectId)}`), ({ json }) =>
    (json.items as ReadonlyArray<{ readonly action: string; readonly actor: string; readonly reason: string }>).map(
      ({ action, actor, reason }) => `${action} by ${actor}: ${reason}`
    )
  )

/** All pages of a list, and the size of the largest. */
export const pagesOf = Effect.fnUntraced(function* (path: string) {
  const items: Array<Record<string, unknown>> = []
  let cursor: string | null = ""
  let pages = 0
  let largestBytes = 0
  while (cursor !== null) {
    const { json, text }: Answer = yield* ask(`${path}${cursor === "" ? "" : `&cursor=${encodeURIComponent(cursor)}`}`)
    items.push(...json.items)
    cursor = json.nextCursor
    pages += 1
    largestBytes = Math.max(largestBytes, text.length)
  }
  return { items, pages, largestBytes }
})

/** Dead letters of the outbox, each of an aggregate of its own. Of three in a row two have the same cause. */
export const deadEvents = (
  count: number,
  texts: { readonly error?: string; readonly type?: string; readonly aggregate?: string } = {}
) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    sql`
      INSERT INTO outbox_dead_letters (lane, seq, event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
        occurred_at, trace_id, span_id, record_bytes, data, status, attempts, last_error, history, ended_at)
      SELECT 0, nextval(pg_get_serial_sequence('outbox_events', 'seq')), ${sql.literal(idAt("clock_now()"))}, 'orders',
        ${texts.type ?? "OrderPlaced"}, 1, 'Order', coalesce(${texts.aggregate ?? null}, gen_random_uuid()::text), 1, clock_now(), repeat('0', 32),
        repeat('0', 16), 100, '{}', 'dead', 10,
        coalesce(${texts.error ?? null}, CASE n % 3 WHEN 0 THEN 'offset ' || n || ' is gone' ELSE 'message ' || n || ' is too large' END), '[]', clock_now()
      FROM generate_series(1, ${count}::int) AS n
      RETURNING event_id::text AS "eventId"`.pipe(Effect.map((rows) => rows.map((row) => String(row["eventId"]))))
  )

/** Events that the consumer `analytics` can't apply, each of an aggregate of its own. */
export const deadAtConsumer = (count: number, status: "dead" | "gap" = "dead", error = "no such sku") =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    sql`
      WITH held AS (
        INSERT INTO inbox_holds (consumer_name, aggregate_id, topic, event_id, status, attempts, last_error, held_at)
        SELECT 'analytics', gen_random_uuid()::text, 'orders', ${sql.literal(idAt("clock_now()"))}::text, ${status}, 10, ${error}, clock_now()
        FROM generate_series(1, ${count}::int)
        RETURNING aggregate_id, event_id)
      SELECT aggregate_id AS "aggregateId", event_id AS "eventId" FROM held`.pipe(
      Effect.tap(
        (rows) =>
          sql`
          INSERT INTO ${sql(status === "dead" ? "inbox_dead_letters" : "inbox_parked")}
            (consumer_name, aggregate_id, position, event_id, event_type, aggregate_type, aggregate_version, topic, broker_partition, broker_offset,
             record_headers, parked_at ${sql.literal(status === "dead" ? ", status, attempts, last_error, history, ended_at" : "")})
          SELECT 'analytics', aggregate_id, 3, event_id, 'OrderPaid', 'Order', 3, 'orders', 0, 7, '{}', clock_now()
                 ${sql.literal(status === "dead" ? ", 'dead', 10, last_error, '[]', clock_now()" : "")}
          FROM inbox_holds WHERE event_id = ANY (${rows.map((row) => String(row["eventId"]))}::text[])`
      ),
      Effect.map((rows) => rows.map((row) => String(row["eventId"])))
    )
  )

/** Texts that break what forgets to quote, encode or cut. */
export const hostile = `<script>alert(1)</script> "'; DROP TABLE orders; -- \\u0000 \${x} %00 %2F ../ 🦆 ‮ é\u0301`
