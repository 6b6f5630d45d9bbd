/** One-line mistakes in `src/guards`: in what waits while the broker is unavailable, and in what is refused. */
import type { Mutant } from "./mutants.ts"

const topicPauses = "src/guards/PauseRules.ts"
const partitionPauses = "src/guards/PartitionPauses.ts"

export const guardMutants: ReadonlyArray<Mutant> = [
  {
    name: "outage-without-end",
    breaks: "health still reports an outage that is over, and the next one begins with the longest pause",
    file: partitionPauses,
    find: "Effect.tap(() => reached),",
    replace: "",
    seenBy: { file: "test/guards/Pauses.test.ts", test: "the first send that succeeds" }
  },
  {
    name: "each-failure-of-a-round",
    breaks: "the backoff of an outage grows with the workers that meet it one after the other",
    file: topicPauses,
    find: "isLate ? before : ",
    replace: "",
    seenBy: { file: "test/guards/PauseRules.test.ts", test: "concurrent sends count as one failure," }
  },
  {
    name: "looks-at-disorder-by-the-poll",
    breaks: "a repaired aggregate waits for the next poll, whose interval may be minutes",
    file: "src/guards/OutOfOrderVersions.ts",
    find: "yield* pollRequests.after(waitMillis)",
    replace: "yield* Effect.void",
    seenBy: { file: "test/guards/OutOfOrderVersions.test.ts", test: "a repaired aggregate is" }
  },
  {
    name: "fetches-from-what-is-away",
    breaks: "the backlog of an unavailable topic is fetched again and again, and not sent",
    file: partitionPauses,
    find: "return [[first.lane, { toTry, failed: topics, others: topics.filter((topic) => topic !== toTry) }]]",
    replace: "return [[first.lane, { toTry, failed: topics, others: [] }]]",
    seenBy: { file: "test/guards/Pauses.test.ts", test: "concurrent sends that fail" }
  },
  {
    name: "waits-though-it-is-back",
    breaks: "after an outage each partition waits for its own pause, which may be half a minute",
    file: topicPauses,
    find: "untilMillis: Math.min(failure.untilMillis, now), ",
    replace: "untilMillis: failure.untilMillis, ",
    seenBy: { file: "test/guards/PauseRules.test.ts", test: "the first success after an outage of a whole" }
  },
  {
    name: "the-same-topic-again",
    breaks: "of several unavailable topics of a lane one is tried again and again, and the others never",
    file: partitionPauses,
    find: ".toSorted((one, other) => (turns.get(one.key) ?? 0) - (turns.get(other.key) ?? 0))",
    replace: "",
    seenBy: { file: "test/guards/Pauses.test.ts", test: "of a lane's unavailable topics one is" }
  },
  {
    name: "keeps-its-turn",
    breaks:
      "partitions that failed and have no events any more are chosen for each probe, and those that have some wait",
    file: partitionPauses,
    find: "for (const key of places) turns.set(key, ++turn)",
    replace: "turn++",
    seenBy: { file: "test/guards/Pauses.test.ts", test: "a partition that is back does not wait behind two" }
  },
  {
    name: "refused-and-not-reached",
    breaks: "health still reports an outage although the broker answers with a refusal",
    file: partitionPauses,
    find: `error._tag === "MessageRejected"
                  ? reached`,
    replace: `error._tag === "MessageRejected"
                  ? Effect.void`,
    seenBy: { file: "test/guards/Pauses.test.ts", test: "a topic that refuses an event" }
  },
  {
    name: "sends-into-a-pause",
    breaks: "a topic that was paused while the lane sent to another one is tried all the same",
    file: topicPauses,
    find: "if (mustWait(failure, now)) return",
    replace: "if (probed.has(key)) return",
    seenBy: { file: "test/guards/Pauses.test.ts", test: "a lane's second topic fails elsewhere" }
  },
  {
    name: "held-until-the-timer",
    breaks: "a refused event waits for the end of a pause that ended before its time",
    file: partitionPauses,
    find: "Effect.andThen(pollRequests.now, holds.changed.open)",
    replace: "pollRequests.now",
    seenBy: { file: "test/outbox/HoldRetries.test.ts", test: "a due event whose partition's" }
  },
  {
    name: "away-with-all-each-time",
    breaks: "an unavailable partition is tried each time a send to another partition succeeds",
    file: topicPauses,
    find: "? lastMillis < failure.sinceMillis",
    replace: "? true",
    seenBy: { file: "test/guards/PauseRules.test.ts", test: "several partitions that fail" }
  },
  {
    name: "back-one-by-one",
    breaks: "after an outage with a success in between, each partition waits for its own pause",
    file: topicPauses,
    find: ": own.some(({ sinceMillis }) => sinceMillis <= failure.seenMillis)",
    replace: ": lastMillis < failure.sinceMillis",
    seenBy: { file: "test/guards/PauseRules.test.ts", test: "the first success after an outage of a whole" }
  },
  {
    name: "late-after-the-outage",
    breaks:
      "after an outage a partition whose last send was slow to fail waits for half a minute, though its topic is back",
    file: topicPauses,
    find: "before?.releasedMillis !== undefined && sentMillis < before.releasedMillis",
    replace: "before?.releasedMillis !== undefined && sentMillis < 0",
    seenBy: { file: "test/guards/PauseRules.test.ts", test: "a send that began before the topic was" }
  },
  {
    name: "ended-and-untold",
    breaks: "a lane whose partition's pause was ended by another send waits for the next poll",
    file: topicPauses,
    find: "let hasEnded = own.length > 0",
    replace: "let hasEnded = false",
    seenBy: { file: "test/guards/PauseRules.test.ts", test: "a pause that another send to the" }
  },
  {
    name: "all-at-the-dead",
    breaks: "more than two sends at once go to partitions that do not answer",
    file: topicPauses,
    find: "probed.size < maxProbes && ",
    replace: "",
    seenBy: { file: "test/guards/PauseRules.test.ts", test: "a failed partition is tried by one send at a time," }
  },
  {
    name: "all-at-once",
    breaks: "all lanes of a partition that does not answer send to it, one after the other",
    file: topicPauses,
    find: "maxProbes && !probed.has(key)",
    replace: "maxProbes",
    seenBy: { file: "test/guards/PauseRules.test.ts", test: "a failed partition is tried by one send" }
  },
  {
    name: "behind-a-backlog",
    breaks: "a topic's events wait behind another topic's backlog during its attempt, for as long as a send may take",
    file: partitionPauses,
    find: "isCut && events.some(",
    replace: "!isCut && events.some(",
    seenBy: { file: "test/guards/Pauses.test.ts", test: "also from behind a backlog" }
  },
  {
    name: "well-and-untold",
    breaks: "lanes that wait for an attempt on their partition are not woken when an earlier send to it succeeds",
    file: topicPauses,
    find: "let hasEnded = own.length > 0",
    replace: "let hasEnded = own.some(({ untilMillis }) => untilMillis > now)",
    seenBy: { file: "test/guards/PauseRules.test.ts", test: "a lane that waits for another" }
  },
  {
    name: "keeps-what-it-cannot-send",
    breaks: "events in the lanes of a dispatcher that can't reach the broker wait, although other processes reach it",
    file: "src/guards/BrokerReachability.ts",
    find: "yield* ownership.setAble(answers)",
    replace: "yield* Effect.void",
    seenBy: { file: "test/guards/BrokerReachability.test.ts", test: "the lanes of a process" }
  },
  {
    name: "waits-though-it-answers",
    breaks: "a dispatcher that reaches the broker again waits for the ends of its pauses, which may be half a minute",
    file: "src/guards/BrokerReachability.ts",
    find: "if (answers) yield* pauses.release",
    replace: "",
    seenBy: { file: "test/guards/BrokerReachability.test.ts", test: "if no process reaches the broker, all" }
  },
  {
    name: "refused-each-time",
    breaks: "if a topic's limit is low each batch of a backlog is sent whole, in halves and in quarters first",
    file: "src/guards/SizeLimits.ts",
    find: "if (limits.size > 0 && events.length > 1",
    replace: "if (limits.size < 0 && events.length > 1",
    seenBy: { file: "test/outbox/RefusedEvents.test.ts", test: "a topic's limit is remembered for" }
  },
  {
    name: "believes-for-ever",
    breaks: "a topic with one refusal gets small batches until the next start",
    file: "src/guards/SizeLimits.ts",
    find: "limit.untilMillis <= now()",
    replace: "limit.untilMillis <= 0",
    seenBy: { file: "test/outbox/RefusedEvents.test.ts", test: "a topic's limit is remembered for" }
  },
  {
    name: "wakes-with-the-restless",
    breaks: "a partition that fails and recovers in turns makes an unavailable one be tried as often",
    file: topicPauses,
    find: "sinceMillis <= failure.seenMillis",
    replace: "sinceMillis <= Number.POSITIVE_INFINITY + failure.seenMillis",
    seenBy: { file: "test/guards/PauseRules.test.ts", test: "a partition that fails and" }
  },
  {
    name: "forgotten-in-the-line",
    breaks: "a partition that waits a minute for its attempt counts as healthy, and is sent to without a limit",
    file: topicPauses,
    find: "waited.set(key, now)\n",
    replace: "\n",
    seenBy: { file: "test/guards/PauseRules.test.ts", test: "a partition that waits for its attempt" }
  },
  {
    name: "the-slow-one-first",
    breaks: "a topic's events wait in their lane for the send to another, unavailable topic",
    file: partitionPauses,
    find: "events: [\n",
    replace: "events: [\n...fetched.events.filter(({ topic }) => topic === toTry),\n",
    seenBy: { file: "test/guards/Pauses.test.ts", test: "of a lane's topics those that are well" }
  },
  {
    name: "round-without-end",
    breaks:
      "while sends to a topic always overlap, each failure counts as part of the previous one, and the backoff never grows",
    file: topicPauses,
    find: "isLate ? before : {",
    replace: "isLate ? { attempt: before.attempt, seenMillis: now } : {",
    seenBy: { file: "test/guards/PauseRules.test.ts", test: "consecutive failures are counted although sends" }
  },
  {
    name: "outage-that-went-elsewhere",
    breaks: "health still reports an outage in a process that has lost its lanes, until the topic's next event there",
    file: topicPauses,
    find: "if (lastMillis + options.forgottenAfterMillis <= now && !probed.has(key)) forget(key)",
    replace: "",
    seenBy: { file: "test/guards/PauseRules.test.ts", test: "a pause without further sends is forgotten" }
  },
  {
    name: "only-the-poll-looks",
    breaks: "after an outage of a moment its events wait for the next poll, whose interval may be minutes",
    file: partitionPauses,
    find: "pollRequests.after(millis)",
    replace: "Effect.void",
    seenBy: { file: "test/outbox/LaneWorkers.test.ts", test: "what an outage stopped" }
  },
  {
    name: "fetches-what-falls",
    breaks: "an aggregate with out-of-order versions stops its whole lane once it fills a batch",
    file: "src/guards/OutOfOrderVersions.ts",
    find: "{ ...part, withoutAggregates: [...(part.withoutAggregates ?? []), ...aggregates] }",
    replace: "part",
    seenBy: { file: "test/guards/OutOfOrderVersions.test.ts", test: "whatever is queued of an" }
  },
  {
    name: "falls-for-ever",
    breaks: "a repaired aggregate is not sent before its process restarts",
    file: "src/guards/OutOfOrderVersions.ts",
    find: "if ((yield* Monotonic.millis) < those.checkAtMillis) return aggregates",
    replace: "if (those.checkAtMillis > 0) return aggregates",
    seenBy: {
      file: "test/guards/OutOfOrderVersions.test.ts",
      test: "an aggregate with out-of-order versions is not sent,"
    }
  }
]
