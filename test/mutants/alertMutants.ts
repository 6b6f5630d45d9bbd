/** Mistakes of one line in figures that alerts ask for: a real service is ill, and nobody is woken. */
import type { Mutant } from "./mutants.ts"

const scrapes = "test/docs/AlertScrapes.test.ts"

export const alertMutants: ReadonlyArray<Mutant> = [
  {
    name: "batches-take-no-time",
    breaks: "batches that take long wake nobody",
    file: "src/operations/OutboxMetrics.ts",
    find: "(now - (began ?? now)) / 1_000",
    replace: "0",
    seenBy: { file: scrapes, test: "batches and tasks that take long" }
  },
  {
    name: "behind-and-untold",
    breaks: "a consumer that is far behind wakes nobody",
    file: "src/operations/InboxMetrics.ts",
    find: "partitions.reduce((sum, partition) => sum + partition.lag, 0)",
    replace: "0",
    seenBy: { file: scrapes, test: "slices that fail and come again" }
  },
  {
    name: "retries-do-not-wait",
    breaks: "tasks that wait for their next try after a failure are no backlog",
    file: "src/tasks/TaskMetrics.ts",
    find: "count(*) FILTER (WHERE state = 'failed')::float8 AS failed",
    replace: "0::float8 AS failed",
    seenBy: { file: scrapes, test: "a mail server that is down" }
  }
]
