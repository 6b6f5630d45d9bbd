/** A directory for an embedded server of a test's own. */
import { Effect } from "effect"
import { chmodSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { reset } from "../../src/postgres/embedded/EmbeddedPostgres.ts"

/** Empty, until the scope closes. The account that runs Postgres can pass through it. */
export const make = Effect.acquireRelease(
  Effect.sync(() => {
    const made = mkdtempSync(join(tmpdir(), "embedded-"))
    chmodSync(made, 0o711)
    return made
  }),
  (made) =>
    Effect.andThen(
      Effect.ignore(reset(made)),
      Effect.sync(() => rmSync(made, { recursive: true }))
    )
)
