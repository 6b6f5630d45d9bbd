/**
 * Takes the demo's broker away, and brings it back. The embedded broker is four tables, so the database's owner gives them other names: each
 * statement on them fails, and the service sees `BrokerUnavailable` as with any broker that is down. Nothing of the service knows of it, and a process
 * that starts meanwhile does not mend it.
 */
import { Effect, Layer, type Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { Problem } from "../../http/Problems.ts"
import * as Main from "../../main.ts"
import * as Database from "../../postgres/Database.ts"
import { unknown } from "./Children.ts"

const tables = ["broker_topics", "broker_partitions", "broker_log", "broker_offsets"]

const away = (table: string) => `${table}_away`

/** Statements on these tables take milliseconds. One that is waited for longer belongs to a frozen process. */
const lockTimeout = "3s"

/** The demo's broker, until the scope closes. `tell` says what happens to it. */
export const make = Effect.fnUntraced(function* (
  ownerUrl: Redacted.Redacted,
  tell: (what: string) => Effect.Effect<void>
) {
  const database = yield* Layer.build(
    Database.layer.pipe(Layer.provide(Main.settingsOf(ownerUrl, { maxConnections: 1 })))
  )
  let isAway = false

  const rename = (nameOf: (table: string) => readonly [from: string, to: string]) =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`SET LOCAL lock_timeout = ${sql.literal(`'${lockTimeout}'`)}`
      for (const table of tables) {
        const [from, to] = nameOf(table)
        yield* sql`ALTER TABLE ${sql(from)} RENAME TO ${sql(to)}`
      }
    }).pipe(
      (all) => Effect.flatMap(SqlClient.SqlClient, (sql) => sql.withTransaction(all)),
      Effect.mapError(
        ({ message }) => new Problem({ status: 503, detail: `the broker's tables are in use: ${message}` })
      ),
      Effect.provideContext(database)
    )

  return {
    isAway: () => isAway,
    /** Does it, once. */
    act: (action: string): Effect.Effect<void, Problem> => {
      if (action !== "take-away" && action !== "bring-back")
        return unknown("action", action, ["take-away", "bring-back"])
      const wanted = action === "take-away"
      return Effect.gen(function* () {
        if (wanted === isAway) return
        yield* rename((table) => (wanted ? [table, away(table)] : [away(table), table]))
        isAway = wanted
        yield* tell(wanted ? "The broker is taken away" : "The broker is back")
      })
    }
  }
})
