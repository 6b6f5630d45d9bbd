/** A writer as a process of its own: transactions of Ledger.ts until SIGTERM. Started by Fleet.ts. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect, Layer } from "effect"
import * as FleetProtocol from "./FleetProtocol.ts"
import * as Ledger from "./Ledger.ts"
import * as TestProcess from "./TestProcess.ts"

const program = Effect.gen(function* () {
  const settings = yield* FleetProtocol.settings
  // If the database goes away, the transaction may or may not have committed, which the ledger shows. The next one is new.
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
