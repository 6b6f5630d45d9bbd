import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { runInNewContext } from "node:vm"
import * as FirstCollection from "../../src/cli/FirstCollection.ts"

it.effect("it collects what nobody holds, and gives no other context its means", () =>
  Effect.gen(function* () {
    const dropped = new WeakRef({ some: "object" })
    // A reference that was made or read is kept until its turn of the event loop ends.
    yield* Effect.callback<void>((resume) => void setImmediate(() => resume(Effect.void)))
    yield* FirstCollection.collect
    assert.isUndefined(dropped.deref())
    assert.strictEqual(runInNewContext("typeof gc"), "undefined")
  })
)
