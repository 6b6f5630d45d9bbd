/** Where random UUIDs come from: the system's secure source, or a test's seed. */
import { Context } from "effect"
import { randomUUID } from "node:crypto"

/** Draws a UUID version 4. The database stamps its own time over the front of it (`uuid_v7`), which makes it a version 7. */
export const RandomUuid = Context.Reference<() => string>("paid-once/platform/RandomUuid", {
  defaultValue: () => randomUUID
})
