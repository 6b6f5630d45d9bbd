/**
 * Makes payments `manual` whose recovery task is dead. All runs of such a task failed without an outcome: each crashed its process, say, or
 * failed on a defect. As `manual` the payment is logged and counted, and a person or the gateway's webhook settles it.
 */
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer } from "effect"
import * as Supervised from "../platform/Supervised.ts"
import { Transaction } from "../platform/Transaction.ts"
import { Tasks } from "../tasks/Tasks.ts"
import { PaymentOutcomes } from "./PaymentOutcomes.ts"
import { isRecoverPayload, paymentRecover, phaseOfRecovery } from "./tasks/PaymentRecover.ts"

/** Such a payment has waited for hours, so seconds do not matter. A sweep is a probe of an index. */
const sweepMillis = 10_000
/** Bounds one round; the next one continues. */
const sweepLimit = 100

/** One round. Completes the dead tasks, whose payments a person looks after now, and returns how many there were. */
export const sweepOnce = Effect.gen(function* () {
  const tasks = yield* Tasks
  const outcomes = yield* PaymentOutcomes
  const dead = yield* tasks.dead(paymentRecover.name, sweepLimit)
  for (const { idempotencyKey, lastError, payload, taskId } of dead) {
    if (isRecoverPayload(payload)) {
      const reason = `its recovery is dead: ${lastError ?? "nobody knows why"}`
      // The recovery of a charge can die after the charge: the refund has a recovery of its own.
      yield* outcomes.manual(payload.paymentId, phaseOfRecovery(idempotencyKey), reason).pipe(
        // The other payments don't wait behind a task whose payment somebody has deleted.
        Effect.catchTag("PaymentNotFound", (error) => Effect.logError(`a dead recovery is dropped: ${error.message}`))
      )
    } else yield* Effect.logError(`a dead recovery is dropped: task ${taskId} names no payment`)
    yield* Transaction.run(tasks.settle(taskId))
  }
  return dead.length
})

/** Sweeps for as long as the layer lives. */
export const layer: Layer.Layer<never, never, Tasks | PaymentOutcomes | PgClient.PgClient | Supervised.Fibers> =
  Layer.effectDiscard(Supervised.forkLoop("stranded payments", Effect.andThen(sweepOnce, Effect.sleep(sweepMillis))))
