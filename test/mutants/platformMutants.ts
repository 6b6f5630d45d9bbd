/** Mistakes in `src/platform` and `src/tasks`. */
import type { Mutant } from "./mutants.ts"

const backoff = "src/platform/Backoff.ts"
const leases = "src/tasks/TaskLeases.ts"
const ids = "src/platform/Ids.ts"
const supervised = "src/platform/Supervised.ts"

export const platformMutants: ReadonlyArray<Mutant> = [
  {
    name: "jitters-a-fifth",
    breaks: "processes that failed at the same moment come back at nearly the same moment",
    file: backoff,
    find: "random * Duration.toMillis(duration)",
    replace: "(0.8 + 0.4 * random) * Duration.toMillis(duration)",
    seenBy: { file: "test/platform/Backoff.test.ts", test: "full jitter is random" }
  },
  {
    name: "backs-off-for-ever",
    breaks: "a dependency that comes back after an hour is tried again after another hour",
    file: backoff,
    find: "Effect.succeed(Math.min(capMillis, Duration.toMillis(duration)))",
    replace: "Effect.succeed(Duration.toMillis(duration))",
    seenBy: { file: "test/platform/Backoff.test.ts", test: "full jitter is random" }
  },
  {
    name: "remembers-failures-after-a-long-run",
    breaks: "a fiber that ran for days is restarted as one that never worked",
    file: backoff,
    find: "- startedMillis > millis) step",
    replace: "- startedMillis > Infinity) step",
    seenBy: { file: "test/platform/Backoff.test.ts", test: "a run that was longer" }
  },
  {
    name: "remembers-failures-after-a-success",
    breaks: "a fiber that has worked since is restarted as one that never worked",
    file: supervised,
    find: `    (run) => Backoff.retry(run, restart),
    Effect.andThen(succeeded),
    Effect.forever,`,
    replace: `    Effect.andThen(succeeded),
    Effect.forever,
    Effect.retry(restart),`,
    seenBy: { file: "test/platform/Supervised.test.ts", test: "success resets the backoff" }
  },
  {
    name: "dies-of-a-defect",
    breaks: "a defect ends a supervised fiber for good, without a log line",
    file: supervised,
    find: "    Effect.sandbox,\n    // Inside",
    replace: "    Effect.mapError(Cause.fail),\n    // Inside",
    seenBy: { file: "test/platform/Supervised.test.ts", test: "a step that fails or dies" }
  },
  {
    name: "takes-renewed-leases-back",
    breaks: "a task whose worker renews its lease late is given to another one, and runs twice at once",
    file: leases,
    find: " AND t.lease_until <= clock.now\n",
    replace: "\n",
    seenBy: { file: "test/tasks/Worker.test.ts", test: "a lease that is renewed, or a run that ends" }
  },
  {
    name: "ids-by-the-host",
    breaks: "ids begin with the time of a host, and those of two hosts fall into different days",
    file: ids,
    find: "aheadMillis = databaseMillis - atMillis",
    replace: "aheadMillis = Date.now() - atMillis + 0 * databaseMillis",
    seenBy: { file: "test/platform/Ids.test.ts", test: "the layer reads the database's time, however" }
  },
  {
    name: "ids-of-the-first-sample",
    breaks: "after a failover ids keep the time of the old server for as long as the process lives",
    file: "src/platform/ControlConnection.ts",
    find: ".sampleBy(Effect.map(pinned.connection.query(timeQuery), ({ rows }) => rows))",
    replace: ".sampleBy(Effect.as(pinned.connection.query(timeQuery), [{ millis: 0 }]))",
    seenBy: { file: "test/platform/Ids.test.ts", test: "a heartbeat of the control connection" }
  },
  {
    name: "ids-that-repeat-their-time",
    breaks: "ids of one millisecond come in any order, and an index takes them all over its pages",
    file: ids,
    find: "++counter === counterLimit",
    replace: "(counter = parseInt(random.slice(15, 18), 16)) === counterLimit",
    seenBy: { file: "test/platform/Ids.test.ts", test: "is greater than the one before" }
  },
  {
    name: "listens-where-it-locks",
    breaks: "a frozen process keeps its lanes under load: Postgres waits for it to read its notifications",
    file: "src/platform/ControlConnection.ts",
    find: "const { connection } = pinned",
    replace: "const { connection } = pinned\n          yield* connection.query(`LISTEN ${channel}`)",
    seenBy: { file: "test/soak/dispatcher/Lanes.test.ts", test: "a frozen dispatcher loses its lanes" }
  },
  {
    name: "keeps-a-broken-session",
    breaks: "lanes that a failed statement has locked have no owner while the session lives, and no process notices",
    file: "src/platform/ControlConnection.ts",
    find: "Effect.tapError(() => parts.broken.open),",
    replace: "",
    seenBy: { file: "test/platform/Ownership.test.ts", test: "a lock on" }
  },
  {
    name: "kept-and-untold",
    breaks: "a turn that was refused because its lane was to be given up is lost when the lane is kept",
    file: "src/platform/Ownership.ts",
    find: "wereLeaving.some((slot) => mine.includes(slot) && !leaving.has(slot))",
    replace: "wereLeaving.length > count",
    seenBy: { file: "test/platform/Ownership.test.ts", test: "a slot that was being given up" }
  },
  {
    name: "nobody-can-so-nobody-has",
    breaks: "in an outage of the broker all members give their lanes up, and no lane has an owner when it is over",
    file: "src/platform/OwnershipLocks.ts",
    find: "dealtTo: able.length > 0 ? able : members",
    replace: "dealtTo: able",
    seenBy: { file: "test/platform/Ownership.test.ts", test: "a member that can't use its slots leaves" }
  },
  {
    name: "waits-by-the-wall-clock",
    breaks: "if the wall clock is set back by an hour, every pause lasts an hour longer",
    file: "src/platform/Monotonic.ts",
    find: "Effect.map(Clock.monotonicTimeNanos",
    replace: "Effect.map(Clock.currentTimeNanos",
    seenBy: { file: "test/guards/PauseRules.test.ts", test: "a wall clock that" }
  }
]
