/** npm run fuzz -- --minutes 5 [--seed 7] [--kafka]: `Fuzzer` on a Postgres of its own, until a promise is broken or the time is over. */
import { Cause, Effect, Exit, Redacted } from "effect"
import { randomUUID } from "node:crypto"
import { parseArgs } from "node:util"
import * as KafkaSource from "../support/KafkaSource.ts"
import * as Postgres from "../support/Postgres.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { fuzz, FuzzFailed } from "./Fuzzer.ts"

const { values: flags } = parseArgs({
  options: {
    minutes: { type: "string", default: "5" },
    seed: { type: "string" },
    kafka: { type: "boolean", default: false }
  }
})
const minutes = Number(flags.minutes)
const seed = flags.seed === undefined ? Date.now() % 1_000_000 : Number(flags.seed)
if (!(minutes > 0) || !Number.isSafeInteger(seed) || seed < 0) {
  console.error("fuzz: --minutes is a number above 0, and --seed a whole number from 0 on")
  process.exit(2)
}

console.log(`seed ${seed}`)
const exit = await Effect.runPromiseExit(
  Effect.gen(function* () {
    const server = yield* Postgres.acquire
    const name = yield* Postgres.migrated(server)
    const url = Redacted.make(Postgres.withDatabase(server, name))
    const servers = flags.kafka ? (yield* KafkaSource.acquire).bootstrapServers : undefined
    return yield* fuzz({
      kafka: servers === undefined ? undefined : { servers, prefix: `fuzz-${randomUUID()}-` },
      url,
      directory: yield* TestDatabase.dataDirectory,
      millis: minutes * 60_000,
      seed,
      log: console.log
    })
  }).pipe(Effect.scoped)
)
if (Exit.isSuccess(exit)) console.log(JSON.stringify(exit.value, null, 2))
else {
  const error = Cause.squash(exit.cause)
  console.error(error instanceof FuzzFailed ? error.message : Cause.pretty(exit.cause))
}
process.exit(Exit.isSuccess(exit) ? 0 : 1)
