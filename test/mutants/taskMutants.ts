/** One-line mistakes in the tasks, and in the payments that tasks recover. */
import type { Mutant } from "./mutants.ts"

const claim = "src/tasks/TaskClaim.ts"
const leases = "src/tasks/TaskLeases.ts"
const cleanup = "src/tasks/TaskCleanup.ts"

const tasks = "src/tasks/Tasks.ts"
const enqueueOptions = "src/tasks/EnqueueOptions.ts"

const taskRows = "src/tasks/TaskRows.ts"
const idempotency = "src/application/Idempotency.ts"

const taskWorkers = "src/tasks/TaskWorkers.ts"

const loops = "test/tasks/Loops.test.ts"
const states = "test/tasks/States.test.ts"
const keyRetention = "test/application/KeyRetention.test.ts"
const strandedPayments = "test/application/StrandedPayments.test.ts"
const claimsAndLeases = "test/tasks/ClaimsAndLeases.test.ts"
const cleanupTest = "test/tasks/Cleanup.test.ts"

export const taskMutants: ReadonlyArray<Mutant> = [
  {
    name: "renews-another-owners-lease",
    breaks: "a worker that has lost its task keeps the next owner's lease alive, and goes on beside it",
    file: leases,
    find: "t.task_id = run.task_id AND t.token = run.token AND",
    replace: "t.task_id = run.task_id AND",
    seenBy: { file: claimsAndLeases, test: "a late worker's heartbeat neither renews" }
  },
  {
    name: "room-for-each-priority",
    breaks: "a worker takes its type's limit of tasks for each priority",
    file: claim,
    find: "                ) AS found\n                LIMIT wanted.free\n",
    replace: "                ) AS found\n",
    seenBy: { file: claimsAndLeases, test: "a type whose tasks have several priorities" }
  },
  {
    name: "due-in-neither",
    breaks: "a task that becomes due between a claim and the question for the next due one waits for the poll",
    file: claim,
    find: 'AND t.execute_at > ${since ?? "-infinity"}::timestamptz',
    replace: "AND t.execute_at > clock.now",
    seenBy: { file: "test/tasks/Workers.test.ts", test: "a task that becomes due between a claim" }
  },
  {
    name: "cleans-up-a-day-early",
    breaks: "a finished task is deleted, with its idempotency key, a day before its retention is over",
    file: cleanup,
    find: "finished_at < ${cutoff}::timestamptz\n          ORDER BY",
    replace: "finished_at < ${cutoff}::timestamptz + interval '1 day'\n          ORDER BY",
    seenBy: { file: cleanupTest, test: "a finished task is kept for 30 days less a minute" }
  },
  {
    name: "settles-before-manual",
    breaks: "a sweep that dies in between leaves a payment without a recovery",
    file: "src/application/StrandedPayments.ts",
    find: "  for (const { idempotencyKey, lastError, payload, taskId } of dead) {\n",
    replace:
      "  for (const { idempotencyKey, lastError, payload, taskId } of dead) {\n    yield* Transaction.run(tasks.settle(taskId))\n",
    seenBy: { file: strandedPayments, test: "a sweep that dies before the payment is manual" }
  },
  {
    name: "cancel-strands-its-payment",
    breaks: "the payment of a recovery that an operator cancels stays charging, or refunding, for ever",
    file: tasks,
    find: "        yield* runCancelEffect(taskId, operator)\n",
    replace: "",
    seenBy: { file: strandedPayments, test: "the transaction that cancels the recovery of a " }
  },
  {
    name: "cancel-locks-the-task-first",
    breaks: "a cancellation and the storing of the payment's outcome deadlock",
    file: tasks,
    find: "        yield* runCancelEffect(taskId, operator)\n        const before = yield* lock(taskId)\n",
    replace: "        const before = yield* lock(taskId)\n        yield* runCancelEffect(taskId, operator)\n",
    seenBy: { file: strandedPayments, test: "a cancellation that waits for the payment" }
  },
  {
    name: "cancelled-charge-stops-the-refund",
    breaks: "a refund is left to a person because the recovery of its charge was cancelled",
    file: "src/application/PaymentOutcomes.ts",
    find: "phase === undefined || idempotencyKey !== recoveryKeyOf(payment.id, phase)",
    replace: "phase === undefined",
    seenBy: { file: strandedPayments, test: "cancelling what is left of a charge's recovery" }
  },
  {
    name: "dead-charge-stops-the-refund",
    breaks: "a refund is left to a person because the recovery of its charge died",
    file: "src/application/PaymentOutcomes.ts",
    find: "if (phaseOf(payment) !== phase) return {",
    replace: "if (phaseOf(payment) === undefined) return {",
    seenBy: { file: strandedPayments, test: "the dead recovery of a charge" }
  },
  {
    name: "recovers-what-is-settled",
    breaks: "a run of a charge's recovery that comes after the charge may charge again",
    file: "src/application/RecoverPayment.ts",
    find: `        if ((capturedMinor > 0 ? "refund" : "charge") !== phase) return { status, answer: undefined }\n`,
    replace: "",
    seenBy: { file: "test/application/RecoverPayment.test.ts", test: "the last run of a charge's recovery" }
  },
  {
    name: "run-without-an-end",
    breaks: "a task stays leased for ever whose handler fails with a value that JSON does not know",
    file: "src/tasks/TaskRunner.ts",
    find: "Formatter.format(error)",
    replace: "JSON.stringify(error)",
    seenBy: { file: "test/tasks/Worker.test.ts", test: "whatever a handler fails with" }
  },
  {
    name: "keeps-running-what-is-settled",
    breaks: "a task that has failed once is run again, although it is no longer needed",
    file: tasks,
    find: "state IN ('pending', 'failed', 'dead')",
    replace: "state IN ('pending', 'dead')",
    seenBy: { file: states, test: "settle completes a task that waits" }
  },
  {
    name: "completes-the-cancelled",
    breaks: "a task that an operator has cancelled reads as completed",
    file: tasks,
    find: "state IN ('pending', 'failed', 'dead')",
    replace: "state IN ('pending', 'failed', 'dead', 'cancelled')",
    seenBy: { file: states, test: "settle completes a task that waits" }
  },
  {
    name: "hastens-to-later",
    breaks: "hastening a task that is due soon delays it",
    file: tasks,
    find: " AND execute_at > ${due}",
    replace: "",
    seenBy: { file: states, test: "hasten brings a waiting task" }
  },
  {
    name: "hastens-the-new-only",
    breaks: "a task that has failed once waits for its whole delay, although what it waits for has come",
    file: tasks,
    find: "state IN ('pending', 'failed') AND execute_at",
    replace: "state = 'pending' AND execute_at",
    seenBy: { file: states, test: "hasten brings a waiting task" }
  },
  {
    name: "forgets-attempts",
    breaks: "an operator who makes a failed task due now gives it all its attempts again",
    file: taskRows,
    find: "attempts = CASE WHEN state = 'failed' THEN attempts ELSE 0 END",
    replace: "attempts = 0",
    seenBy: { file: states, test: "retry makes a waiting task due" }
  },
  {
    name: "retries-at-its-own-time",
    breaks: "a task that an operator retries waits for its old due time",
    file: taskRows,
    find: "execute_at = clock_now(), finished_at",
    replace: "finished_at",
    seenBy: { file: states, test: "retry makes a waiting task due" }
  },
  {
    name: "dead-for-ever",
    breaks: "a dead task can't be cancelled",
    file: tasks,
    find: 'if (before.state === "completed") return',
    replace: 'if (before.state === "completed" || before.state === "dead") return',
    seenBy: { file: states, test: "cancel cancels a task that waits" }
  },
  {
    name: "delays-for-ages",
    breaks: "a delay in a wrong unit is taken, and its task never runs",
    file: enqueueOptions,
    find: " && delayMillis <= maxDelayMillis",
    replace: "",
    seenBy: { file: states, test: "the lowest and highest priority" }
  },
  {
    name: "takes-documents",
    breaks: "a task takes a payload of any size",
    file: enqueueOptions,
    find: "if (length > maxPayloadLength)",
    replace: "if (false)",
    seenBy: { file: states, test: "the lowest and highest priority" }
  },
  {
    name: "drops-keys-a-day-early",
    breaks: "a request that is repeated on the last day of its key's retention is another request",
    file: idempotency,
    find: "${retentionDays}::int4 * interval '24 hours'",
    replace: "(${retentionDays}::int4 - 1) * interval '24 hours'",
    seenBy: { file: keyRetention, test: "a key is kept for 7 days" }
  },
  {
    name: "drops-keys-of-refunds",
    breaks: "the key of a payment that is being refunded is forgotten",
    file: idempotency,
    find: "'charging', 'manual', 'refunding'",
    replace: "'charging', 'manual'",
    seenBy: { file: keyRetention, test: "an old key is kept while its payment" }
  },
  {
    name: "repeats-at-half",
    breaks: "a gateway's key is used again after half of its retention",
    file: "src/application/Gateway.ts",
    find: "ageMillis < keyRetentionMillis / 2",
    replace: "ageMillis <= keyRetentionMillis / 2",
    seenBy: { file: keyRetention, test: "the gateway's key may be used again" }
  },
  {
    name: "beats-never",
    breaks: "a task that runs for longer than its lease is run by a second worker beside the first",
    file: taskWorkers,
    find: "sleep(heartbeatMillis, stamp), worker.heartbeatOnce",
    replace: "sleep(heartbeatMillis, stamp), Effect.void",
    seenBy: { file: loops, test: "the lease of a task that runs for long" }
  },
  {
    name: "beats-once",
    breaks: "the same, where the lease is renewed once",
    file: taskWorkers,
    find: "Effect.andThen(sleep(heartbeatMillis, stamp), worker.heartbeatOnce)",
    replace: "Effect.andThen(Effect.andThen(sleep(heartbeatMillis, stamp), worker.heartbeatOnce), Effect.never)",
    seenBy: { file: loops, test: "the lease of a task that runs for long" }
  },
  {
    name: "sweeps-once",
    breaks: "the tasks of a worker that is killed are taken back by the next start only",
    file: taskWorkers,
    find: "Effect.andThen(worker.recoverOnce, sleep(sweepMillis, stamp))",
    replace: "Effect.andThen(worker.recoverOnce, Effect.forever(sleep(sweepMillis, stamp)))",
    seenBy: { file: loops, test: "a task whose worker was lost" }
  },
  {
    name: "samples-tasks-once",
    breaks: "the metric of dead tasks shows what there was at the start",
    file: "src/tasks/TaskMetrics.ts",
    find: "Effect.sleep(sampleMillis)",
    replace: "Effect.never",
    seenBy: { file: loops, test: "the number of dead tasks" }
  },
  {
    name: "waits-unseen",
    breaks: "a mail server is down for an hour, and no metric shows the mails that wait for their retry",
    file: "src/tasks/TaskMetrics.ts",
    find: "count(*) FILTER (WHERE state = 'failed')",
    replace: "count(*) FILTER (WHERE is_due AND state = 'failed')",
    seenBy: { file: loops, test: "a task that waits for a retry is counted" }
  },
  {
    name: "upkeep-at-the-start",
    breaks: "maintenance does one round and no other",
    file: "src/operations/Maintenance.ts",
    find: "for (let nap = 0; nap < naps; nap++)",
    replace: "for (;;)",
    seenBy: { file: loops, test: "maintenance goes on" }
  },
  {
    name: "sweeps-payments-once",
    breaks: "a payment whose recovery dies waits for the next start",
    file: "src/application/StrandedPayments.ts",
    find: "Effect.andThen(sweepOnce, Effect.sleep(sweepMillis))",
    replace: "Effect.andThen(sweepOnce, Effect.never)",
    seenBy: { file: strandedPayments, test: "the sweep continues" }
  }
]
