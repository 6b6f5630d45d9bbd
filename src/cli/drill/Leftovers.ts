/**
 * Leftovers of a killed drill: breakages and armed faults. They are found by their names, mended by the next drill and by `drill --mend`, and told
 * by the doctor.
 */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { type Check, told } from "../../operations/doctor/Check.ts"
import { ArmedFaults } from "../../operations/faults/ArmedFaults.ts"
import type { Operator } from "../../platform/OperatorAudit.ts"
import * as Rows from "../../platform/Rows.ts"
import * as Breakages from "./Breakages.ts"
import * as Stranded from "./Stranded.ts"
import type { Teller } from "./Teller.ts"

/** Held by the drill that runs, in its database. Two at once would mend each other's breakages. */
export const lockKey = 7_315_961

/** The reason of what a drill does, in the audit. Its faults are known by it. */
export const reasonOf = (drill: string) => `the drill ${drill}`

const armed = Rows.all(Schema.Struct({ point: Schema.String }))
const isSo = Rows.one(Schema.Struct({ so: Schema.Boolean }))

const faults = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  armed(sql`SELECT point FROM armed_faults WHERE reason LIKE ${reasonOf("%")} ORDER BY point`)
)

const inWords = (point: string) => `a fault is armed at ${point}`

/** The names of all leftovers. */
const found = Effect.gen(function* () {
  const broken = yield* Effect.filter(Breakages.all, ({ isBroken }) => isBroken)
  return [...broken.map(({ what }) => what), ...(yield* faults).map(({ point }) => inWords(point))]
})

const hasLeft = "A drill that was killed, or a person on the demo's page, has left this"

/**
 * Mends all of it, as the database's owner that holds the lock, and then what waits of the drills' orders. Tells each thing as it comes right. Answers
 * with all of these, and with what still waits for the service.
 */
export const mend = Effect.fnUntraced(function* (operator: Operator, { tell }: Pick<Teller, "tell">) {
  const mended: Array<string> = []
  const isMended = (what: string) => {
    mended.push(what)
    return tell("mends", `${hasLeft}, and it is mended: ${what}.`)
  }
  for (const breakage of Breakages.all) {
    if (!(yield* breakage.isBroken)) continue
    yield* Effect.retry(breakage.mend, Breakages.retries)
    yield* isMended(breakage.what)
  }
  const { clear } = yield* ArmedFaults
  for (const { point } of yield* faults) {
    yield* Effect.orDie(clear(point, operator))
    yield* isMended(inWords(point))
  }
  const orders = yield* Stranded.handOn(operator, (what) => tell("sees", `${hasLeft}: ${what}.`))
  for (const what of orders.mended) yield* isMended(what)
  for (const what of orders.waiting) yield* tell("sees", `${hasLeft}, and it waits for the service: ${what}.`)
  return { mended, waiting: orders.waiting }
})

/** Whether a drill runs: it mends what it breaks. */
const isRunning = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    isSo(sql`
      SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 0 AND objid = ${lockKey} AND objsubid = 1
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS so`),
    ({ so }) => so
  )
)

/** The doctor's check. Other checks take the consequences of a drill for faults of Postgres and the topic. */
export const check: Check<SqlClient.SqlClient> = {
  group: "drills",
  name: "drill-leftovers",
  mendFirst: true,
  run: Effect.gen(function* () {
    const left = yield* found
    if (yield* isRunning)
      return told(`a drill is running, and mends what it breaks: ${left.join("; ") || "nothing yet"}`)
    return told(
      "no drill has left anything broken",
      left.map((what) => ({
        problem: `a killed drill, or a person on the demo's page, has left this: ${what}`,
        fix: "Mend it before you do what is told below, which may come of it",
        command: "npm run -s paid-once -- drill --mend"
      }))
    )
  })
}
