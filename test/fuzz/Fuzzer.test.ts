import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { named, plantedEnv } from "../mutants/planted.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { fuzz } from "./Fuzzer.ts"

/** With a mistake planted the run is shorter: some mistakes are only seen at rest, and `npm run mutants` bounds it all. */
const seconds = named() === undefined ? 60 : 45
/** Another one in each run, so that many minutes are more than one minute many times. It is printed with what it finds. */
const seed = Date.now() % 1_000_000

it.live(
  "whatever a minute of hostile input and faults does, every answer is a documented one in time, nothing is lost, and the books agree",
  () =>
    Effect.gen(function* () {
      console.log(`fuzz: seed ${seed}`)
      const { url } = yield* TestDatabase.make()
      const report = yield* fuzz({
        url,
        directory: yield* TestDatabase.dataDirectory,
        millis: seconds * 1_000,
        seed,
        env: plantedEnv()
      })
      // It has done something: orders were placed and paid, and things were refused.
      for (const status of ["200", "201", "400", "404", "409"]) assert.isAbove(report.byStatus[status] ?? 0, 0, status)
      assert.isAbove(report.strikes, 0)
      // The way back of the money was tried, too: not each request to it was refused at the door.
      for (const endpoint of ["POST /orders/{id}/cancel", "POST /orders/{id}/refund"]) {
        assert.notMatch(report.byEndpoint[endpoint] ?? "0 of", /^0 of/, endpoint)
      }
    }).pipe(Effect.scoped),
  600_000
)
