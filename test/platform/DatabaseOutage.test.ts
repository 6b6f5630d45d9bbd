/** Which answers of Postgres tell an outage, and which a fault of the statement. */
import { assert, it } from "@effect/vitest"
import { Cause } from "effect"
import { SqlError } from "effect/sql"
import { judge } from "../../src/inbox/Failures.ts"
import * as DatabaseOutage from "../../src/platform/DatabaseOutage.ts"

const props = (code: string) => ({ cause: Object.assign(new Error("no"), { code }), message: "Query failed" })

/** An answer of Postgres with this code, as the driver classes it. */
const answer = (code: string) =>
  new SqlError.SqlError({
    reason: code.startsWith("08")
      ? new SqlError.ConnectionError(props(code))
      : code.startsWith("28")
        ? new SqlError.AuthenticationError(props(code))
        : code === "57014"
          ? new SqlError.StatementTimeoutError(props(code))
          : new SqlError.UnknownError(props(code))
  })

const codes = {
  passes: [
    "08000",
    "08001",
    "08003",
    "08004",
    "08006",
    "08P01",
    "25006",
    "28000",
    "28P01",
    "53000",
    "53100",
    "53200",
    "53300",
    "57000",
    "57P01",
    "57P02",
    "57P03",
    "57P04",
    "57P05",
    "58000",
    "58030",
    "58P01"
  ],
  "is the statement's fault": ["57014", "53400", "22012", "22P02", "25P02", "42501", "42P01", "54000", "54001", "XX000"]
}

for (const [what, all] of Object.entries(codes)) {
  for (const code of all) {
    it(`requests, tasks and consumers agree: SQLSTATE ${code} ${what}`, () => {
      const cause = Cause.die(answer(code))
      assert.strictEqual(DatabaseOutage.inCause(cause) !== undefined, what === "passes")
      assert.strictEqual(judge(cause)._tag, what === "passes" ? "Transient" : "Failed")
    })
  }
}
