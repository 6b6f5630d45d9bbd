/** Health sees each loop that a role should run: a layer that is missing in `src/main.ts`, `src/main` or `src/Dispatching.ts` turns this red. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { type Role, roles } from "../../src/Roles.ts"
import * as Main from "../../src/main.ts"
import { consumerNames } from "../../src/main/Names.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as ServiceConfig from "./ServiceConfig.ts"

const ofEachProcess = [
  "control-connection",
  "pauses",
  "wake-ups",
  "watched lanes",
  "machine metrics",
  "pool metrics of requests"
]

const ofRole: Readonly<Record<Role, ReadonlyArray<string>>> = {
  http: ["live stream", "payment metrics", "reconciliation metrics", "sandbox webhooks", "topic checks", "write-probe"],
  dispatcher: [
    "broker reachability",
    "dispatcher holds",
    "dispatcher poll",
    "dispatcher turns",
    "lane watch",
    "lane watch locks",
    "low-water marks",
    "outbox sizes",
    "ownership of dispatcher",
    "pool metrics of dispatcher",
    "publish latency",
    "topic checks"
  ],
  consumers: [
    ...consumerNames.flatMap((name) => [`consumer ${name}`, `consumer ${name} held`, `consumer ${name} metrics`]),
    "pool metrics of consumers",
    "topic checks"
  ],
  workers: [
    "payment metrics",
    "pool metrics of workers",
    "reconciliation metrics",
    "sandbox webhooks",
    "stranded payments",
    "task claims",
    "task ends",
    "task heartbeats",
    "task metrics",
    "task sweep"
  ],
  // The nightly reconciliation needs the use cases.
  maintenance: ["maintenance", "payment metrics", "reconciliation", "reconciliation metrics", "sandbox webhooks"]
}

for (const some of [roles, ...roles.map((role) => [role])]) {
  it.live(`a process with the roles ${some.join(", ")} has their fibers, and no others`, () =>
    Effect.gen(function* () {
      const config = yield* ServiceConfig.load
      const context = yield* Layer.build(Main.service(config, new Set(some), { json: true }))
      const states = yield* Context.get(context, Fibers).states
      // A partition's fiber exists while this process owns the partition, and a sender's while it has work.
      const names = states.map(({ name }) => name).filter((name) => !/^(consume|dispatcher sender) /.test(name))
      assert.sameMembers(names, [...new Set([...ofEachProcess, ...some.flatMap((role) => ofRole[role])])])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )
}

it.live(
  "a dispatcher without the archive notes that no event need be there, and one with it that later ones have to be",
  () =>
    Effect.gen(function* () {
      const config = yield* ServiceConfig.load
      const notes = Effect.fnUntraced(function* (outboxArchive: boolean) {
        const service = Main.service({ ...config, outboxArchive }, new Set(["dispatcher"]), { json: true })
        const context = yield* Layer.build(service)
        return yield* Context.get(context, SqlClient.SqlClient)`
          SELECT forgotten_before = 'infinity' AS nothing FROM retention WHERE table_name = 'event_log'`
      }, Effect.scoped)
      assert.deepStrictEqual(yield* notes(false), [{ nothing: true }])
      assert.deepStrictEqual(yield* notes(true), [{ nothing: false }])
    }).pipe(Effect.provide(TestDatabase.layer))
)
