/** One-line mistakes in `src/operations` and in health: in what an operator is told about the outbox. */
import type { Mutant } from "./mutants.ts"

const metrics = "src/operations/OutboxMetrics.ts"
const dispatcherHealth = "src/http/DispatcherHealth.ts"

export const operationsMutants: ReadonlyArray<Mutant> = [
  {
    name: "mended-and-told-of",
    breaks: "health still reports a topic's setting that was mended, if the topic was not named at the start",
    file: "src/operations/TopicChecks.ts",
    find: "[...topics, ...others]",
    replace: "topics",
    seenBy: { file: "test/operations/TopicChecks.test.ts", test: "an unsafe topic is checked again" }
  },
  {
    name: "looks-once",
    breaks: "of two operators who redrive an event at once the second is told that it waits behind itself",
    file: "src/operations/OutboxDeadLetters.ts",
    find: "return hasMoved ? yield* lockOnce(eventId) : found",
    replace: "return found",
    seenBy: {
      file: "test/operations/OutboxDeadLetters.test.ts",
      test: "two operators who redrive one skipped event at"
    }
  },
  {
    name: "counts-what-was-not-sent",
    breaks: "the metric of failed events grows by whole batches, although most of their events were published",
    file: metrics,
    find: "count(batch.events, (eventType)",
    replace: "count([...batch.events, ...batch.events], (eventType)",
    seenBy: { file: "test/guards/Pauses.test.ts", test: "of a batch in parts" }
  },
  {
    name: "each-its-own-partition-count",
    breaks: "dispatchers that saw a topic before and after it grew send one aggregate to two partitions",
    file: "src/operations/PartitionCounts.ts",
    find: "RETURNING t.partitions`)\n          return partitions",
    replace: "RETURNING t.partitions`)\n          return found",
    seenBy: { file: "test/operations/PartitionCounts.test.ts", test: "all processes that note different counts" }
  },
  {
    name: "certificate-that-ends-last",
    breaks: "a certificate ends and nobody was told, since a second one in its file lasts longer",
    file: "src/operations/MachineMetrics.ts",
    find: "Math.min(",
    replace: "Math.max(",
    seenBy: { file: "test/operations/MachineMetrics.test.ts", test: "free disk, the slot that is furthest behind" }
  },
  {
    name: "slot-that-is-nearest",
    breaks: "an abandoned replication slot fills the disk behind one that is read",
    file: "src/operations/MachineMetrics.ts",
    find: "coalesce(max(",
    replace: "coalesce(0 * max(",
    seenBy: { file: "test/operations/MachineMetrics.test.ts", test: "free disk, the slot that is furthest behind" }
  },
  {
    name: "backlog-of-none",
    breaks: "the gauge of pending events says that there are none",
    file: metrics,
    find: "Metric.update(pendingGauge, pending.count)",
    replace: "Metric.update(pendingGauge, 0)",
    seenBy: { file: "test/operations/OutboxMetrics.test.ts", test: "the metrics of pending events, their age," }
  },
  {
    name: "nothing-is-old",
    breaks: "the age of the oldest pending event is 0, however long it waits",
    file: metrics,
    find: "Metric.update(oldestGauge, pending.oldestSeconds)",
    replace: "Metric.update(oldestGauge, 0)",
    seenBy: { file: "test/operations/OutboxMetrics.test.ts", test: "the metrics of pending events, their age," }
  },
  {
    name: "dead-for-parked",
    breaks: "the gauge of parked events counts the dead letters",
    file: metrics,
    find: "Metric.update(parkedGauge, parked)",
    replace: "Metric.update(parkedGauge, dead)",
    seenBy: { file: "test/operations/OutboxMetrics.test.ts", test: "the metrics of pending events, their age," }
  },
  {
    name: "nobody-is-dead",
    breaks: "the gauge of dead letters says that there are none",
    file: metrics,
    find: "Metric.update(deadGauge, dead)",
    replace: "Metric.update(deadGauge, 0)",
    seenBy: { file: "test/operations/OutboxMetrics.test.ts", test: "the metrics of pending events, their age," }
  },
  {
    name: "always-well",
    breaks: "health calls a dispatcher ready that can't send",
    file: dispatcherHealth,
    find: "pausedTopics.length === 0 && stoppedLanes.length === 0 && misordered.length === 0",
    replace: "true",
    seenBy: { file: "test/http/DispatcherHealth.test.ts", test: "a topic that can't be reached degrades" }
  },
  {
    name: "well-without-lanes",
    breaks: "health calls a dispatcher ready although its lanes end in defects",
    file: dispatcherHealth,
    find: " && stoppedLanes.length === 0",
    replace: "",
    seenBy: { file: "test/http/DispatcherHealth.test.ts", test: "a lane that ends in a defect degrades" }
  },
  {
    name: "stopped-lanes-untold",
    breaks: "health does not name the stopped lanes",
    file: dispatcherHealth,
    find: "stoppedLanes.map(({ attempt, lane }) => ({ lane, attempt }))",
    replace: "[]",
    seenBy: { file: "test/http/DispatcherHealth.test.ts", test: "a lane that ends in a defect degrades" }
  },
  {
    name: "well-in-disorder",
    breaks: "health calls a dispatcher ready although it no longer sends an aggregate",
    file: dispatcherHealth,
    find: " && misordered.length === 0",
    replace: "",
    seenBy: {
      file: "test/http/DispatcherHealth.test.ts",
      test: "aggregates with out-of-order versions degrade the service,"
    }
  },
  {
    name: "disorder-untold",
    breaks: "health does not count the aggregates that are not sent any more",
    file: dispatcherHealth,
    find: "misordered.reduce((sum, { aggregates }) => sum + aggregates, 0)",
    replace: "0",
    seenBy: {
      file: "test/http/DispatcherHealth.test.ts",
      test: "aggregates with out-of-order versions degrade the service,"
    }
  }
]
