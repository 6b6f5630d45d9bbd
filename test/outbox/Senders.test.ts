/** A sender outlives its work. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Logger, References } from "effect"
import * as Senders from "../../src/outbox/Senders.ts"
import { Fibers } from "../../src/platform/Supervised.ts"

it.effect("work that ends in a defect is logged, and the work behind it in the line is done", () =>
  Effect.gen(function* () {
    const lines: Array<string> = []
    // Not even a logger that throws ends a sender.
    const logger = Logger.make(({ message }) => {
      lines.push(String(message))
      throw new Error("no room for a log")
    })
    const done = yield* Deferred.make<void>()
    yield* Effect.gen(function* () {
      const enqueue = yield* Senders.make
      enqueue("orders", 0, () => Effect.die(new Error("broken on purpose")))
      enqueue("orders", 0, () => {
        throw new Error("thrown on purpose")
      })
      enqueue("orders", 0, () => Effect.asVoid(Deferred.succeed(done, undefined)))
      yield* Deferred.await(done)
    }).pipe(
      Effect.provide(Logger.layer([logger])),
      Effect.provideService(References.MinimumLogLevel, "Error"),
      Effect.timeout("5 seconds")
    )
    assert.deepStrictEqual(
      lines.map((line) => line.includes("dispatcher sender orders/0")),
      [true, true]
    )
  }).pipe(Effect.scoped, Effect.provide(Fibers.layer))
)
