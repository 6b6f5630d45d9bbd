/** A process has one of each part, however many roles use it. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { roles } from "../../src/Roles.ts"
import { HealthParts } from "../../src/http/Health.ts"
import * as Main from "../../src/main.ts"
import { Fibers } from "../../src/platform/Supervised.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as ServiceConfig from "./ServiceConfig.ts"

/**
 * A memo map that counts how often each layer is built. A `Layer.build` inside a layer forks the memo map. The fork asks its parent for a
 * layer, and builds the layer itself if the parent has none. Such a question counts as a build.
 */
const countingMemoMap = () => {
  const inner = Layer.makeMemoMapUnsafe()
  const builds = new Map<unknown, number>()
  const count = (layer: unknown) => builds.set(layer, (builds.get(layer) ?? 0) + 1)
  const memoMap: Layer.MemoMap = {
    ...inner,
    "~effect/Layer/MemoMap": "~effect/Layer/MemoMap",
    get: (layer, scope) => {
      const found = inner.get(layer, scope)
      if (found === undefined) count(layer)
      return found
    },
    getOrElseMemoize: (layer, scope, build) =>
      inner.getOrElseMemoize(layer, scope, (_, inside) =>
        Effect.suspend(() => {
          count(layer)
          return build(memoMap, inside)
        })
      )
  }
  return { memoMap, builds }
}

const listeners = () => process.getActiveResourcesInfo().filter((name) => name === "TCPServerWrap").length

const twice = (names: ReadonlyArray<string>) => names.filter((name, index) => names.indexOf(name) !== index)

it.live("a process with all roles has one of each: layers, listeners, sessions, parts of health, fibers", () =>
  Effect.gen(function* () {
    const config = yield* ServiceConfig.load
    const listenersBefore = listeners()
    const { builds, memoMap } = countingMemoMap()
    const scope = yield* Scope.make()
    const service = Main.service(config, new Set(roles), { json: true })
    const context = yield* Layer.buildWithMemoMap(service, memoMap, scope)
    const listening = listeners() - listenersBefore
    const sessions = yield* Effect.provide(
      SqlClient.SqlClient.use(
        (sql) => sql`
          SELECT FROM pg_stat_activity
          WHERE datname = current_database() AND application_name LIKE 'paid-once control %'`
      ),
      context
    )
    const parts = (yield* Context.get(context, HealthParts).all).map(({ name }) => name)

    // Scope close removes each supervised fiber once, so two fibers of one name are removed twice.
    const ended: Array<string> = []
    const fibers = Context.get(context, Fibers)
    const { remove } = fibers
    Object.assign(fibers, {
      remove: (name: string) =>
        Effect.andThen(
          Effect.sync(() => void ended.push(name)),
          remove(name)
        )
    })
    yield* Scope.close(scope, Exit.void)

    assert.deepStrictEqual(
      {
        layersTwice: [...builds.values()].filter((count) => count > 1).length,
        listening,
        controlSessions: sessions.length,
        partsTwice: twice(parts),
        fibersTwice: twice(ended)
      },
      // The listeners of the service and of the sandbox gateway.
      { layersTwice: 0, listening: 2, controlSessions: 1, partsTwice: [], fibersTwice: [] }
    )
    // Each counter has counted something.
    assert.isAbove(builds.size, 50)
    assert.includeMembers(parts, ["dispatcher", "inbox"])
    assert.includeMembers(ended, ["wake-ups", "consumer analytics", "pool metrics of workers", "payment metrics"])
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)
