/**
 * Breakages that the drills make in the database, as its owner. Each is found by its name in the database's catalogue, so a killed drill's are found
 * and mended, too (Leftovers.ts).
 */
import { Effect, Schedule, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { ordersTopic } from "../../domain/Events.ts"
import * as Rows from "../../platform/Rows.ts"
import * as ProcessToken from "./ProcessToken.ts"

/** Something that can be broken and mended. */
export interface Breakage {
  /** What is broken, for a person. */
  readonly what: string
  readonly isBroken: Effect.Effect<boolean, SqlError.SqlError, SqlClient.SqlClient>
  readonly break: Effect.Effect<void, SqlError.SqlError, SqlClient.SqlClient>
  /** Does nothing where it is whole. */
  readonly mend: Effect.Effect<void, SqlError.SqlError, SqlClient.SqlClient>
}

/** Statements on these tables take milliseconds. A lock that is waited for longer would hold up everybody behind it. */
const lockTimeout = "3s"

/** A table is in use again and again on a busy machine: the next try finds a gap. */
export const retries = Schedule.max([Schedule.spaced("300 millis"), Schedule.recurs(20)])

const isSo = Rows.one(Schema.Struct({ so: Schema.Boolean }))

const isTable = (name: string) =>
  exists(`SELECT FROM pg_class WHERE relname = '${name}' AND relnamespace = current_schema()::regnamespace`)

/** Runs the statements in one transaction that waits for no lock for long. */
const atomically = (...statements: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql.withTransaction(
      Effect.forEach([`SET LOCAL lock_timeout = '${lockTimeout}'`, ...statements], (one) => sql.unsafe(one), {
        discard: true
      })
    )
  })

const exists = (query: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(isSo(sql.unsafe(`SELECT EXISTS (${query}) AS so`)), ({ so }) => so)
  )

const whereBroken = (isBroken: Breakage["isBroken"], mend: Breakage["mend"]): Breakage["mend"] =>
  Effect.flatMap(isBroken, (broken) => (broken ? mend : Effect.void))

const awayName = (table: string) => `${table}_away`

/** Gives tables other names: each statement on them fails. Takes all of them, or none. */
export const tablesAway = (what: string, schema: string, tables: ReadonlyArray<string>): Breakage => {
  const isBroken = exists(
    `SELECT FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace
     WHERE relname = '${awayName(tables[0]!)}' AND n.nspname = ${schema === "" ? "current_schema()" : `'${schema}'`}`
  )
  const path = schema === "" ? "" : `${schema}.`
  const rename = (nameOf: (table: string) => readonly [from: string, to: string]) =>
    atomically(
      ...tables.map((table) => {
        const [from, to] = nameOf(table)
        return `ALTER TABLE ${path}${from} RENAME TO ${to}`
      })
    )
  return {
    what,
    isBroken,
    break: rename((table) => [table, awayName(table)]),
    mend: whereBroken(
      isBroken,
      rename((table) => [awayName(table), table])
    )
  }
}

/** The embedded broker: each send and each fetch fails, as with any broker that is down. */
export const broker = tablesAway("the broker is away", "", [
  "broker_topics",
  "broker_partitions",
  "broker_log",
  "broker_offsets"
])

/** The sandbox gateway's books: it answers every request with 500, and nobody knows what it has charged. */
export const gatewayBooks = tablesAway("the gateway answers nothing but errors", "sandbox_gateway", ["charges"])

const lostReports = "drill_lost_reports"

/** The sandbox gateway's reports of charges, which are taken for delivered. */
export const gatewayReports: Breakage = {
  what: "the gateway's reports are lost",
  isBroken: exists(`SELECT FROM pg_trigger WHERE tgname = '${lostReports}'`),
  break: atomically(
    `CREATE FUNCTION sandbox_gateway.${lostReports}() RETURNS trigger LANGUAGE plpgsql
     AS $$ BEGIN NEW.deliveries_left := 0; RETURN NEW; END $$`,
    `CREATE TRIGGER ${lostReports} BEFORE INSERT ON sandbox_gateway.webhooks
     FOR EACH ROW EXECUTE FUNCTION sandbox_gateway.${lostReports}()`
  ),
  mend: atomically(
    `DROP TRIGGER IF EXISTS ${lostReports} ON sandbox_gateway.webhooks`,
    `DROP FUNCTION IF EXISTS sandbox_gateway.${lostReports}()`
  )
}

const poisonName = "drill_poison"

/** Billing's ledger, which refuses rows of one order. An id is of letters of hexadecimal numbers and hyphens. */
export const poisonOf = (orderId: string): Breakage => ({
  what: "billing's ledger refuses an order",
  isBroken: exists(`SELECT FROM pg_constraint WHERE conname = '${poisonName}'`),
  // NOT VALID: no row is read, so the lock is gone at once.
  break: atomically(
    `ALTER TABLE billing_ledger ADD CONSTRAINT ${poisonName} CHECK (order_id <> '${orderId}'::uuid) NOT VALID`
  ),
  mend: atomically(`ALTER TABLE billing_ledger DROP CONSTRAINT IF EXISTS ${poisonName}`)
})

/** Four kilobytes: an event of a few lines fits, and one of a hundred does not. It also tells a limit of ours from an operator's. */
export const smallMessageBytes = 4_001

const limits = Rows.one(Schema.Struct({ limit: Schema.Int }))

/** The topic's limit for a record. */
export const limitNow = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  limits(sql`SELECT max_message_bytes AS limit FROM broker_topics WHERE topic = ${ordersTopic}`)
)

/** Keeps the limit that the topic had. */
const formerLimit = "drill_topic_limit"

const isLimited = isTable(formerLimit)

/** The topic's limit for a record. Mending puts back what it was, unless somebody has set another one meanwhile. */
export const topicLimit: Breakage = {
  what: `the topic takes no record above ${smallMessageBytes} bytes`,
  isBroken: isLimited,
  break: atomically(
    `CREATE TABLE ${formerLimit} AS SELECT max_message_bytes FROM broker_topics WHERE topic = '${ordersTopic}'`,
    `UPDATE broker_topics SET max_message_bytes = ${smallMessageBytes} WHERE topic = '${ordersTopic}'`
  ),
  mend: whereBroken(
    isLimited,
    atomically(
      `UPDATE broker_topics SET max_message_bytes = (SELECT max_message_bytes FROM ${formerLimit})
       WHERE topic = '${ordersTopic}' AND max_message_bytes = ${smallMessageBytes}`,
      `DROP TABLE ${formerLimit}`
    )
  )
}

/** Keeps the token of the dispatcher that a drill starts. */
const dispatcherNote = "drill_dispatcher"

const isNoted = isTable(dispatcherNote)
const tokens = Rows.all(Schema.Struct({ token: Schema.String }))

/**
 * A dispatcher of the drill's own, which outlives a drill that is killed, and can't end itself while it is frozen. Breaking notes its token, to be
 * done before it starts; mending ends the process that has the token.
 */
export const dispatcherOf = (token: string): Breakage => ({
  what: "a dispatcher of the drill's own runs, or is frozen",
  isBroken: isNoted,
  break: atomically(`CREATE TABLE ${dispatcherNote} AS SELECT '${token}'::text AS token`),
  mend: whereBroken(
    isNoted,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      for (const noted of yield* tokens(sql`SELECT token FROM ${sql.literal(dispatcherNote)}`))
        yield* ProcessToken.end(noted.token)
      yield* atomically(`DROP TABLE ${dispatcherNote}`)
    })
  )
})

/** All of them. The broker comes first: the topic's limit is in its tables. */
export const all: ReadonlyArray<Breakage> = [
  broker,
  gatewayBooks,
  gatewayReports,
  poisonOf("00000000-0000-0000-0000-000000000000"),
  topicLimit,
  dispatcherOf("")
]
