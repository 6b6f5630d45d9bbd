/** The location of an example's database: DATABASE_URL, or an embedded Postgres in a temporary directory. */
import { Effect, Layer, Redacted } from "effect"
import { DatabaseSettings } from "paid-once/platform/DatabaseSettings"
import * as EmbeddedPostgres from "paid-once/postgres/embedded/EmbeddedPostgres"

// The owner's: an example makes its own tables. Its demand for SCRAM takes the sockets of `postgres/tls`, which an example does without.
const embeddedUrl = Effect.map(EmbeddedPostgres.acquireTemporary(), ({ ownerUrl }) => {
  const url = new URL(Redacted.value(ownerUrl))
  url.searchParams.delete("require_auth")
  return Redacted.make(url.href)
})

export const location = Layer.unwrap(
  Effect.gen(function* () {
    const given = process.env["DATABASE_URL"]
    return DatabaseSettings.layerOf({ url: given === undefined ? yield* embeddedUrl : Redacted.make(given) })
  })
)
