/** The location of an example's database: DATABASE_URL, or an embedded Postgres in a temporary directory. */
import { Effect, Layer, Redacted } from "effect"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import { DatabaseSettings } from "paid-once/platform/DatabaseSettings"
import * as EmbeddedPostgres from "paid-once/postgres/embedded/EmbeddedPostgres"

const temporaryDirectory = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(Path.join(tmpdir(), "paid-once-example-"))),
  (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
)

const embeddedUrl = Effect.gen(function* () {
  const directory = yield* temporaryDirectory
  const server = yield* EmbeddedPostgres.acquire({ dataDirectory: directory })
  return server.url
})

export const location = Layer.unwrap(
  Effect.gen(function* () {
    const given = process.env["DATABASE_URL"]
    return DatabaseSettings.layerOf({ url: given === undefined ? yield* embeddedUrl : Redacted.make(given) })
  })
)
