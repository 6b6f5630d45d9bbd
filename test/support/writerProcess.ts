/** A writer as a process of its own: transactions of Ledger.ts until it is told to stop. Started by Fleet.ts. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect, Layer } from "effect"
import * as FleetProtocol from "./FleetProtocol.ts"
import * as Ledger from "./Ledger.ts"
import * as TestProcess from "./TestProcess.ts"

const program = Effect.gen(function* () {
  const settings = yield* FleetProtocol.settings
  // A database that goes away took what it was told along, or not: the ledger knows. The next transaction is another one.
  const step = Effect.andThen(Effect.exit(Ledger.step(settings.aggregates)), Effect.sleep(settings.pauseMillis))
  yield* Effect.gen(function* () {
    yield* Ledger.step(settings.aggregates)
    yield* Console.log(JSON.stringify({ ready: true, url: null }))
    yield* Effect.forEach(Array.from({ length: settings.writers }), () => Effect.forever(step), {
      concurrency: "unbounded"
    })
  }).pipe(
    Effect.provide(
      TestProcess.outbox.pipe(Layer.provide(FleetProtocol.layerOf(settings)), Layer.provide(TestProcess.quiet))
    )
  )
}).pipe(Effect.scoped)

NodeRuntime.runMain(program)
