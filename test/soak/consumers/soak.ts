/**
 * npm run soak:consumers [-- --events 100000 --consumers 4 --minutes 10 --seed 1]: `ConsumerSoak` on a Postgres and a Kafka of its own,
 * with random faults of all kinds until the time is over.
 *
 * The seed decides the events and the order of the faults, but not the moment of each. So a failing seed can't be replayed exactly.
 */
import { Effect, Exit, Random, Redacted, References } from "effect"
import { randomInt } from "node:crypto"
import { parseArgs } from "node:util"
import * as Postgres from "../../support/Postgres.ts"
import { soak } from "./ConsumerSoak.ts"

const { values: flags } = parseArgs({
  options: {
    events: { type: "string", default: "100000" },
    consumers: { type: "string", default: "4" },
    minutes: { type: "string", default: "10" },
    seed: { type: "string", default: String(randomInt(1_000_000)) }
  }
})
const [events, consumers, minutes, seed] = [flags.events, flags.consumers, flags.minutes, flags.seed].map(Number)
console.log(`seed ${seed}: ${events} events, ${consumers} consumers, three brokers, ${minutes} minutes`)

const exit = await Effect.runPromiseExit(
  Effect.gen(function* () {
    const server = yield* Postgres.acquire
    const name = yield* Postgres.migrated(server)
    return yield* soak({
      url: Redacted.make(Postgres.withDatabase(server, name)),
      events: events!,
      consumers: consumers!,
      poisonEvery: 2_000,
      blows: { minutes: minutes! },
      log: console.log
    })
  }).pipe(Effect.scoped, Random.withSeed(seed!), Effect.provideService(References.MinimumLogLevel, "Error"))
)
console.log(Exit.isSuccess(exit) ? JSON.stringify(exit.value, null, 2) : String(exit.cause))
// kafkajs sometimes leaves a socket behind, which would keep this process alive.
process.exit(Exit.isSuccess(exit) ? 0 : 1)
