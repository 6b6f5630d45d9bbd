/** The source of random UUIDs: the system's secure one, or a test's seed. */
import { Context } from "effect"
import { randomUUID } from "node:crypto"

/** Draws a UUID version 4. `Ids` puts the time in front of it, which makes it a version 7. */
export const RandomUuid = Context.Reference<() => string>("paid-once/platform/RandomUuid", {
  defaultValue: () => randomUUID
})
