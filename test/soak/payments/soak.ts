/** npm run soak:payments [-- --kills 200]: `PaymentSoak` on a Postgres of its own, until the service was killed that many times. */
import { Effect, Exit, Redacted } from "effect"
import { parseArgs } from "node:util"
import * as Postgres from "../../support/Postgres.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import { soak } from "./PaymentSoak.ts"

const { values: flags } = parseArgs({ options: { kills: { type: "string", default: "200" } } })

const exit = await Effect.runPromiseExit(
  Effect.gen(function* () {
    const server = yield* Postgres.acquire
    const name = yield* Postgres.migrated(server)
    const url = Redacted.make(Postgres.withDatabase(server, name))
    return yield* soak({ url, directory: yield* TestDatabase.dataDirectory, kills: Number(flags.kills) })
  }).pipe(Effect.scoped)
)
console.log(Exit.isSuccess(exit) ? JSON.stringify(exit.value, null, 2) : String(exit.cause))
process.exit(Exit.isSuccess(exit) ? 0 : 1)
