/**
 * Payments whose recovery is dead: all its runs ended before they came to a word, because each took its process along, or met something that nobody
 * thought of. Nobody would look after such a payment any more, so it becomes `manual`: seen, counted, and settled by a person or the gateway's webhook.
 */
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer } from "effect"
import { Tasks } from "../tasks/Tasks.ts"
import { Transaction } from "../platform/Transaction.ts"
import * as Supervised from "../platform/Supervised.ts"
import { PaymentOutcomes } from "./PaymentOutcomes.ts"
import { isRecoverPayload, paymentRecover } from "./tasks/PaymentRecover.ts"

/** Such a payment has waited for hours: some seconds more are nothing, and one look is a probe of an index. */
const sweepMillis = 10_000
/** Taken in one round; more come with the next. */
const sweepLimit = 100

/** One round. Returns how many dead recoveries were dealt with: each is completed, for what it had to look after is in a person's hands. */
export const sweepOnce = Effect.gen(function* () {
  const tasks = yield* Tasks
  const outcomes = yield* PaymentOutcomes
  const dead = yield* tasks.dead(paymentRecover.name, sweepLimit)
  for (const { lastError, payload, taskId } of dead) {
    if (isRecoverPayload(payload)) {
      yield* Effect.orDie(
        outcomes.manual(payload.paymentId, `its recovery is dead: ${lastError ?? "nobody knows why"}`)
      )
    }
    yield* Transaction.run(tasks.settle(taskId))
  }
  return dead.length
})

/** Sweeps for as long as the layer lives. */
export const layer: Layer.Layer<never, never, Tasks | PaymentOutcomes | PgClient.PgClient | Supervised.Fibers> =
  Layer.effectDiscard(Supervised.forkLoop("stranded payments", Effect.andThen(sweepOnce, Effect.sleep(sweepMillis))))
