import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { type Ending, TaskFinish } from "../../../src/tasks/TaskFinish.ts"
import { Transaction } from "../../../src/platform/Transaction.ts"
import type { Mistake } from "./Mistake.ts"

export const unfencedFinish: Mistake = {
  name: "unfenced-finish",
  what: "A worker ends its run by the task's id alone, together with what the task is for.",
  why: "It has claimed the task, so it is its own. But a worker that stands still for longer than its lease comes back to a task that somebody else has taken over, and finished.",
  rule: "Each claim raises the task's token, and an end shows the token of its claim: a late one changes nothing.",
  read: "src/tasks/TaskFinish.ts",
  plant: () => ({
    taskFinish: Layer.effect(
      TaskFinish,
      Effect.map(SqlClient.SqlClient, (client) => {
        const finish = ({ delayMillis = 0, error, outcome, taskId }: Ending) => client`
          UPDATE outbox_tasks
          SET state = CASE WHEN ${outcome}::text = 'released' THEN 'pending' ELSE ${outcome}::text END, lease_until = NULL,
              finished_at = CASE WHEN ${outcome}::text IN ('completed', 'dead', 'cancelled') THEN clock_now() END,
              execute_at = clock_now() + ${delayMillis}::float8 * interval '1 millisecond', last_error = ${error ?? null}::text
          WHERE task_id = ${taskId}::uuid`
        return TaskFinish.of({
          finish: (endings) =>
            Effect.orDie(Effect.forEach(endings, (ending) => Effect.as(finish(ending), ending.taskId))),
          complete: (ending, writes) => Transaction.run(Effect.andThen(Effect.orDie(finish(ending)), writes))
        })
      })
    )
  })
}
