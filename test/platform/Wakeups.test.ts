/** Wake-ups that are sent together travel in one NOTIFY, and arrive one by one. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import * as Database from "../../src/postgres/Database.ts"
import { Ids } from "../../src/platform/Ids.ts"
import { ControlConnection } from "../../src/platform/ControlConnection.ts"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import { Wakeups } from "../../src/platform/Wakeups.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import { eventually } from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const startProcess = Effect.flatMap(TestDatabase, ({ url }) =>
  Layer.build(
    Layer.fresh(
      Wakeups.layer.pipe(
        Layer.provideMerge(ControlConnection.layer),
        Layer.provide(Layer.mergeAll(Fibers.layer, Layer.provide(Ids.layer, Database.layer))),
        Layer.provide(DatabaseSettings.layerOf({ url }))
      )
    )
  )
)

const isConnected = (process: Context.Context<ControlConnection>) =>
  Effect.map(
    Effect.result(Context.get(process, ControlConnection).query("SELECT 1")),
    (result) => result._tag === "Success"
  )

it.live("a thousand wake-ups at once are a few notifications within Postgres' limit, and each arrives", () =>
  Effect.gen(function* () {
    const here = yield* startProcess
    const there = yield* startProcess
    yield* eventually(
      "both to be connected",
      Effect.map(Effect.all([here, there].map(isConnected)), (all) => !all.includes(false))
    )
    const heard = new Set<string>()
    let notifications = 0
    yield* Context.get(there, ControlConnection).onNotification(() => void notifications++)
    yield* Context.get(there, Wakeups).on("many", (detail) => void heard.add(detail))
    const details = Array.from({ length: 1_000 }, (_, number) => `número ${number} 東京`)
    yield* Context.get(here, Wakeups).send("many", details)
    yield* eventually(
      "all wake-ups",
      Effect.sync(() => heard.size === details.length)
    )
    assert.deepStrictEqual([...heard].toSorted(), details.toSorted())
    assert.isBelow(notifications, 50)
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)
