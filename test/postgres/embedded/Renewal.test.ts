/** A role can lock itself out by SQL. That does not outlast a start of the server. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Fibers } from "../../../src/platform/Supervised.ts"
import { acquire, acquireKept } from "../../../src/postgres/embedded/EmbeddedPostgres.ts"
import { eventually } from "../../support/Counters.ts"
import * as EmbeddedDirectory from "../../support/EmbeddedDirectory.ts"

const settings = { fsync: "off" } // speed: no test here cuts the power

const query = (url: Redacted.Redacted, ...statements: ReadonlyArray<string>) =>
  SqlClient.SqlClient.use((sql) =>
    Effect.forEach(statements, (statement) => sql.unsafe<Record<string, unknown>>(statement))
  ).pipe(Effect.provide(PgClient.layer({ url, maxConnections: 1 })))

/** Each of these keeps the service from working. Postgres lets any role do them to itself. */
const lockOut = [
  "ALTER ROLE CURRENT_USER SET default_transaction_read_only = on",
  "ALTER ROLE CURRENT_USER IN DATABASE paid_once SET statement_timeout = 1",
  "ALTER ROLE CURRENT_USER PASSWORD 'x'"
]

const state = `SELECT current_setting('default_transaction_read_only') AS "readOnly", current_setting('statement_timeout') AS timeout`
const works = (url: Redacted.Redacted) =>
  Effect.map(query(url, state), ([rows]) => assert.deepStrictEqual(rows?.[0], { readOnly: "off", timeout: "0" }))

describe("a role that has locked itself out", () => {
  it.live("is let in again by the next start of the server", () =>
    Effect.gen(function* () {
      const dataDirectory = yield* EmbeddedDirectory.make
      for (const role of ["url", "ownerUrl"] as const) {
        yield* Effect.scoped(
          Effect.gen(function* () {
            const server = yield* acquire({ dataDirectory, settings })
            yield* query(server[role], ...lockOut)
            assert.match(String((yield* Effect.flip(query(server[role], "SELECT 1"))).reason.cause), /password/)
          })
        )
        yield* Effect.scoped(
          Effect.flatMap(acquire({ dataDirectory, settings }), (server) => {
            assert.isFalse(server.joined)
            return works(server[role])
          })
        )
      }
    })
  )

  it.live("is let in again by the next process that joins the server", () =>
    Effect.gen(function* () {
      const dataDirectory = yield* EmbeddedDirectory.make
      const { url } = yield* acquire({ dataDirectory, settings })
      yield* query(url, ...lockOut)
      const next = yield* acquire({ dataDirectory, settings })
      assert.isTrue(next.joined)
      yield* works(next.url)
    })
  )

  it.live("starts, too, where the database was made read-only by default, and stays so: doctor tells of it", () =>
    Effect.gen(function* () {
      const dataDirectory = yield* EmbeddedDirectory.make
      const { ownerUrl } = yield* acquire({ dataDirectory, settings })
      yield* query(ownerUrl, "ALTER DATABASE paid_once SET default_transaction_read_only = on")
      const { url } = yield* acquire({ dataDirectory, settings })
      const [rows] = yield* query(url, state)
      assert.strictEqual(rows?.[0]?.["readOnly"], "on")
    })
  )

  it.live("is let in again by the start that follows a crash", () =>
    Effect.gen(function* () {
      const { socketDirectory, url } = yield* acquireKept({ dataDirectory: yield* EmbeddedDirectory.make, settings })
      yield* query(url, ...lockOut)
      const pid = Number(readFileSync(join(socketDirectory, "postmaster.pid"), "utf8").split("\n")[0])
      process.kill(pid, "SIGKILL")
      yield* eventually(
        "the role",
        query(url, "SELECT 1").pipe(
          Effect.as(true),
          Effect.catch(() => Effect.succeed(false))
        )
      )
      yield* works(url)
    }).pipe(Effect.provide(Fibers.layer))
  )
})
