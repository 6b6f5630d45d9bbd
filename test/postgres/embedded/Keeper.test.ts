/** A server that dies while it is used. With processes of the service: test/e2e/PostgresCrash.test.ts. */
import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Logger, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import * as DirectoryLock from "../../../src/platform/DirectoryLock.ts"
import { Fibers } from "../../../src/platform/Supervised.ts"
import { acquireKept } from "../../../src/postgres/embedded/EmbeddedPostgres.ts"
import { eventually } from "../../support/Counters.ts"
import * as EmbeddedDirectory from "../../support/EmbeddedDirectory.ts"

const query = (url: Redacted.Redacted, statement: string) =>
  SqlClient.SqlClient.use((sql) => sql.unsafe<Record<string, unknown>>(statement)).pipe(
    Effect.provide(PgClient.layer({ url, maxConnections: 1 }))
  )

const kill = (sockets: string) =>
  Effect.sync(() => {
    const pid = Number(readFileSync(join(sockets, "postmaster.pid"), "utf8").split("\n")[0])
    process.kill(pid, "SIGKILL")
  })

const answers = (url: Redacted.Redacted) =>
  eventually(
    "the server",
    query(url, "SELECT 1").pipe(
      Effect.as(true),
      Effect.catch(() => Effect.succeed(false))
    )
  )

/** Runs `effect` with the lines that are logged. */
const logged = <A, E, R>(effect: (lines: ReadonlyArray<string>) => Effect.Effect<A, E, R>) => {
  const lines: Array<string> = []
  const logger = Logger.make(({ message }) => void lines.push(String(message)))
  return Effect.provide(effect(lines), Logger.layer([logger]))
}

describe("a kept server", () => {
  it.live("is started again when it was killed, at its address and with what was committed, in two lines", () =>
    logged((lines) =>
      Effect.gen(function* () {
        // Durable: committed data has to survive.
        const { ownerUrl, socketDirectory } = yield* acquireKept({ dataDirectory: yield* EmbeddedDirectory.make })
        yield* query(ownerUrl, "CREATE TABLE kept AS SELECT 42 AS answer")
        yield* kill(socketDirectory)
        yield* answers(ownerUrl)
        assert.deepStrictEqual(yield* query(ownerUrl, "SELECT answer FROM kept"), [{ answer: 42 }])
        yield* eventually(
          "the line about its return",
          Effect.sync(() => lines.some((line) => line.includes("is back")))
        )
        assert.strictEqual(lines.filter((line) => line.includes("the embedded Postgres")).length, 2, lines.join("\n"))
      })
    ).pipe(Effect.scoped, Effect.provide(Fibers.layer))
  )

  it.live("names the process that holds the lock, and is started after it", () =>
    logged((lines) =>
      Effect.gen(function* () {
        const home = yield* EmbeddedDirectory.make
        const { socketDirectory, url } = yield* acquireKept({ dataDirectory: home, settings: { fsync: "off" } })
        const held = yield* Deferred.make<void>()
        const release = yield* Deferred.make<void>()
        const holder = yield* Effect.forkScoped(
          DirectoryLock.withLock(home, Effect.andThen(Deferred.succeed(held, undefined), Deferred.await(release)))
        )
        yield* Deferred.await(held)
        yield* kill(socketDirectory)
        yield* eventually(
          "the line about the holder",
          Effect.sync(() =>
            lines.some((line) => line.includes(`waiting for process ${process.pid}, which holds the lock of ${home}`))
          )
        )
        yield* Deferred.succeed(release, undefined)
        yield* Fiber.join(holder)
        yield* answers(url)
      })
    ).pipe(Effect.scoped, Effect.provide(Fibers.layer))
  )
})
