/** The writer beside our relay: `Outbox.append` in `Transaction.run`, in a process that does not dispatch. */
import { Effect, Layer, ManagedRuntime, Redacted } from "effect"
import * as Plain from "../../src/plain/Plain.ts"
import { Outbox } from "../../src/outbox/Outbox.ts"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Database from "../../src/postgres/Database.ts"
import * as DeferredBegin from "../../src/postgres/fast/DeferredBegin.ts"
import * as QuietWakeups from "../../src/postgres/fast/QuietWakeups.ts"
import { answerWriter, type LoadEvent, shapeHere } from "./OpenLoop.ts"

const url = Redacted.make(process.env["DATABASE_URL"] ?? "")

/** The pool and the wake-ups as the service has them. */
const runtime = ManagedRuntime.make(
  Outbox.layer.pipe(
    Layer.provideMerge(QuietWakeups.layer),
    Layer.provideMerge(Plain.database()),
    Layer.provide(Layer.succeed(Database.SocketSetup, DeferredBegin.install)),
    Layer.provide(DatabaseSettings.layerOf({ url, maxConnections: shapeHere().connections }))
  )
)

const append = ({ data, version, ...aggregate }: LoadEvent) =>
  Effect.flatMap(Outbox, (outbox) =>
    outbox.append(aggregate, version, [{ eventType: "Measured", schemaVersion: 1, data }])
  )

answerWriter(async () => {
  await runtime.context()
  return (event, isKept) =>
    runtime.runPromise(
      isKept
        ? Effect.orDie(Transaction.run(append(event)))
        : Effect.ignore(Transaction.run(Effect.andThen(append(event), Effect.fail("rolled back on purpose"))))
    )
})
