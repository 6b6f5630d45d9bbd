/** Requests, health and the log while Postgres answers that it can't do its work for now. FullDisk.test.ts does the same with a real full disk. */
import { PgClient } from "@effect/sql-pg"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { SqlClient } from "effect/sql"
import * as HttpServer from "../../src/http/HttpServer.ts"
import * as OutageLog from "../../src/operations/OutageLog.ts"
import { eventually } from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { newOrder, send, service } from "./Service.ts"

const lines: Array<string> = []
const logger = Logger.make(({ message }) => void lines.push(...[message].flat().map(String)))

/** What writes fail with, by table: an SQLSTATE. The service's own statements meet it in Postgres. */
const prepared = Layer.effectDiscard(
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`CREATE TABLE refusals (name text PRIMARY KEY, state text NOT NULL)`
    yield* sql.unsafe(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
      DECLARE state text := (SELECT r.state FROM refusals AS r WHERE r.name = TG_TABLE_NAME);
      BEGIN
        IF state IS NOT NULL THEN RAISE EXCEPTION 'no space is left' USING ERRCODE = state; END IF;
        RETURN NEW;
      END $$`)
    for (const table of ["orders", "write_probe"]) {
      yield* sql.unsafe(`CREATE TRIGGER refuse BEFORE INSERT ON ${table} FOR EACH ROW EXECUTE FUNCTION refuse()`)
    }
  })
)

const admin = Layer.unwrap(TestDatabase.useSync(({ url }) => PgClient.layer({ url, maxConnections: 1 })))

const world = service.pipe(
  Layer.provideMerge(Layer.provide(prepared, admin)),
  Layer.provideMerge(TestDatabase.layer),
  Layer.provideMerge(OutageLog.layer),
  Layer.provideMerge(Logger.layer([logger]))
)

const refuse = (state: string, ...tables: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`DELETE FROM refusals`
    for (const table of tables) yield* sql`INSERT INTO refusals VALUES (${table}, ${state})`
  })

const place = Effect.flatMap(HttpServer.BoundAddress, ({ url }) => send(`${url}/orders`, { body: newOrder }))
const writes = Effect.flatMap(HttpServer.BoundAddress, ({ url }) =>
  Effect.map(send(`${url}/health/ready`), ({ json, status }) => ({ status, part: json.parts.writes.status as string }))
)
const becomes = (part: string) =>
  eventually(
    `writes to be ${part}`,
    Effect.map(writes, (now) => now.part === part && now.status === (part === "ready" ? 200 : 503))
  )

layer(world, { excludeTestServices: true })("an outage of the database", (it) => {
  for (const state of [
    "28000",
    "28P01",
    "53000",
    "53100",
    "53200",
    "53300",
    "57P01",
    "57P02",
    "57P03",
    "25006",
    "58030"
  ]) {
    it.effect(`an outage is 503 with Retry-After, and no fault of the service: SQLSTATE ${state}`, () =>
      Effect.gen(function* () {
        yield* refuse(state, "orders")
        const { headers, json, status } = yield* place
        assert.strictEqual(status, 503)
        assert.match(headers.get("retry-after") ?? "", /^[1-9]\d*$/)
        assert.strictEqual(json.detail, "the database can't do this at the moment")
        yield* refuse("")
        assert.strictEqual((yield* place).status, 201)
      })
    )
  }

  it.effect("any other error of Postgres is a 500, and logged with its cause", () =>
    Effect.gen(function* () {
      for (const state of ["XX000", "53400", "57014"]) {
        yield* refuse(state, "orders")
        lines.length = 0
        assert.strictEqual((yield* place).status, 500, state)
        assert.include(lines.join("\n"), "request failed")
        yield* refuse("")
      }
    })
  )

  it.effect(
    "the service is unready while nothing can be written, with a line in the log at the begin and at the end",
    () =>
      Effect.gen(function* () {
        yield* becomes("ready")
        lines.length = 0
        yield* refuse("53100", "orders", "write_probe")
        const answers = yield* Effect.forEach(Array.from({ length: 50 }), () => place, { concurrency: 8 })
        assert.deepStrictEqual([...new Set(answers.map(({ status }) => status))], [503])
        yield* becomes("unready")
        yield* refuse("")
        yield* becomes("ready")
        assert.strictEqual((yield* place).status, 201)
        const [begin, end, ...others] = lines
        assert.strictEqual(begin, "the database is unavailable: no space is left (53100)")
        assert.match(end ?? "", /^the database is available again: .*; it was: no space is left \(53100\)$/)
        assert.deepStrictEqual(others, [])
      })
  )

  it.effect("a statement that alone is refused does not make the service unready", () =>
    Effect.gen(function* () {
      lines.length = 0
      yield* refuse("53200", "orders")
      assert.strictEqual((yield* place).status, 503)
      yield* refuse("")
      // A probe that followed has found nothing.
      assert.strictEqual((yield* place).status, 201)
      assert.deepStrictEqual([(yield* writes).part, lines], ["ready", []])
    })
  )
})
