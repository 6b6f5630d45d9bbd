/** One-line mistakes in the outbox: in what is sent, held and reported. */
import type { Mutant } from "./mutants.ts"

const dispatcher = "src/outbox/Dispatcher.ts"
const laneWorkers = "src/outbox/LaneWorkers.ts"
const topicPauses = "src/guards/PauseRules.ts"
const pipeline = "src/outbox/Pipeline.ts"
const laneByLane = "src/outbox/LaneByLane.ts"
const flights = "src/outbox/Flights.ts"
const partitionPauses = "src/guards/PartitionPauses.ts"
const metrics = "src/operations/OutboxMetrics.ts"
const laneFloors = "src/postgres/fast/LowWaterMarkRounds.ts"
const dispatcherHealth = "src/http/DispatcherHealth.ts"

export const outboxMutants: ReadonlyArray<Mutant> = [
  {
    name: "sends-what-it-could-not-mark",
    breaks: "a lane whose mark fails is sent again at each attempt, though its acknowledgements are in hand",
    file: pipeline,
    find: "([lane, ofLane]) => void unmarked.set(lane, [...new Set([...(unmarked.get(lane) ?? []), ...ofLane])])",
    replace: "() => undefined",
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "a failed mark is repeated lane by lane" }
  },
  {
    name: "one-lane-stops-all",
    breaks: "a lane whose rows can't be fetched keeps every other lane that is ready with it from being sent",
    file: laneByLane,
    find: "if (!isLost && all.length > 1) {",
    replace: "if (!isLost && all.length < 1) {",
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "a failed fetch is repeated lane by lane" }
  },
  {
    name: "lost-connection-stops-lanes",
    breaks: "a connection that is lost for a moment stops every lane of the statement, each with its own backoff",
    file: laneByLane,
    find: "return SqlError.isSqlError(error) && ",
    replace: "return !SqlError.isSqlError(error) && ",
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "a lost connection stops no lane" }
  },
  {
    name: "a-timeout-for-each-lane",
    breaks: "a slow database keeps all lanes waiting for as many timeouts as there are lanes",
    file: laneByLane,
    find: "timeout === undefined ? run(some)",
    replace: "timeout !== null ? run(some)",
    seenBy: { file: "test/outbox/PipelineFailures.test.ts", test: "of many lanes whose statements time out" }
  },
  {
    name: "poll-comes-last",
    breaks: "after an outage of Postgres the poll waits for half a minute, when the stages work again",
    file: laneWorkers,
    find: "{ restartCapMillis: Pipeline.longestWaitMillis }",
    replace: "{}",
    seenBy: { file: "test/outbox/PipelineFailures.test.ts", test: "after an outage of Postgres the poll is back" }
  },
  {
    name: "stops-without-its-marks",
    breaks: "what was acknowledged and could not be marked is sent again after a stop, though Postgres is back",
    file: pipeline,
    find: "dispatcher.mark([...unmarked.values()].flat())",
    replace: "dispatcher.mark([])",
    seenBy: { file: "test/outbox/PipelineFailures.test.ts", test: "a lane whose mark failed, and that waits" }
  },
  {
    name: "takes-the-next-for-stuck",
    breaks: "a lane waits for the poll with what its other topics have, when a new topic's first batch gets no answer",
    file: pipeline,
    find: "const lanes = new Set(events.map(({ lane }) => lane))",
    replace: `const lanes = new Set(events.map(({ lane }) => lane))
      for (const lane of lanes) flights.of(lane).isStuck = true`,
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "while a new topic gets no answer" }
  },
  {
    name: "head-beside-its-batch",
    breaks: "after a start a partition has two sends in flight: a batch, and the due head of the same lane",
    file: pipeline,
    find: "known === undefined && dispatcher.partitionOf(head) !== undefined",
    replace: "(known as unknown) === null",
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "also while a topic's partitions are unknown" }
  },
  {
    name: "ends-with-its-work",
    breaks: "after one defect nothing is sent to the partition any more",
    file: "src/outbox/Senders.ts",
    find: "yield* Effect.exit(",
    replace: "yield* Effect.asVoid(",
    seenBy: { file: "test/outbox/Senders.test.ts", test: "work that ends in a defect" }
  },
  {
    name: "in-flight-for-ever",
    breaks: "a lane whose failure ends in a defect itself is never fetched again",
    file: pipeline,
    find: "Effect.ensuring(flights.close(lanes))\n      )\n    )",
    replace: "Effect.andThen(flights.close(lanes))\n      )\n    )",
    seenBy: { file: "test/outbox/PipelineFailures.test.ts", test: "a lane whose failure can't even be logged" }
  },
  {
    name: "all-heads-at-once",
    breaks: "the due heads of many held aggregates keep the lanes' other events waiting",
    file: pipeline,
    find: ".filter((lane) => lanes.includes(lane)).slice(0, dueLimit)",
    replace: ".filter((lane) => lanes.includes(lane))",
    seenBy: { file: "test/outbox/HeldHeads.test.ts", test: "due heads are sent eight at most" }
  },
  {
    name: "the-same-heads-first",
    breaks: "the heads of eight lanes are always tried first, and those of the other lanes wait",
    file: pipeline,
    find: "for (const lane of turn) due.delete(lane)",
    replace: "",
    seenBy: { file: "test/outbox/HeldHeads.test.ts", test: "due heads are sent eight at most" }
  },
  {
    name: "marks-in-any-order",
    breaks: "a zombie's mark and its successor's deadlock, and Postgres ends one of them",
    file: "src/outbox/Queue.ts",
    find: "padded(inLockOrder(runs))",
    replace: "padded(runs)",
    seenBy: { file: "test/outbox/RowLocks.test.ts", test: "two marks of the same runs" }
  },
  {
    name: "goes-on-after-the-stop",
    breaks: "a stop waits for all pieces of a batch, which may be a thousand sends",
    file: flights,
    find: "isOurs: (lane) => !isStopping && ",
    replace: "isOurs: (lane) => ",
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "a stop lets the send end" }
  },
  {
    name: "sends-without-its-session",
    breaks: "a process that has lost its lanes sends all events that it had fetched of them",
    file: flights,
    find: "options.owns(lane) && flights.get(lane)",
    replace: "flights.get(lane)",
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "after a lost session the send in flight" }
  },
  {
    name: "one-sender-for-all",
    breaks: "a partition that is slow keeps all the others waiting",
    file: "src/outbox/Senders.ts",
    find: "partition === undefined ? topic : `${topic}/${partition}`",
    replace: "topic",
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "acknowledgements may come in any order" }
  },
  {
    name: "floor-over-parked",
    breaks: "events that return from behind a hold are below the lane's low-water mark, and are never sent",
    file: laneFloors,
    find: `{ table: "outbox_parked", comesBack: "true" }`,
    replace: `{ table: "outbox_parked", comesBack: "false" }`,
    seenBy: { file: "test/postgres/fast/LowWaterMarks.test.ts", test: "an event that waits in outbox_parked" }
  },
  {
    name: "floor-over-dead-letters",
    breaks: "a redriven dead letter is below the lane's low-water mark, and is never sent",
    file: laneFloors,
    find: `comesBack: "e.status = 'dead'"`,
    replace: `comesBack: "false"`,
    seenBy: { file: "test/postgres/fast/LowWaterMarks.test.ts", test: "an event that waits in outbox_dead_letters" }
  },
  {
    name: "floor-over-late-committers",
    breaks: "an event that commits late, with a smaller number, is never sent",
    file: laneFloors,
    find: "pg_snapshot_xmin(pg_current_snapshot()) >= ${xid}::text::xid8",
    replace: "pg_snapshot_xmin(pg_current_snapshot()) >= ('3' || left(${xid}::text, 0))::xid8",
    seenBy: {
      file: "test/postgres/fast/LowWaterMarks.test.ts",
      test: "a low-water mark waits for uncommitted transactions with smaller"
    }
  },
  {
    name: "forgets-who-woke-it",
    breaks: "an event that is committed while its lane is busy waits for the next poll",
    file: flights,
    find: "if (flight !== undefined) flight.isWoken = true",
    replace: "if (flight !== undefined) return",
    seenBy: { file: "test/outbox/LaneWorkers.test.ts", test: "an event that commits while a batch of its" }
  },
  {
    name: "late-answer-takes-the-next",
    breaks: "a zombie's late success marks the event that is held now as published: it is lost",
    file: "src/outbox/holds/Parking.ts",
    find: "hold.dead || hold.eventId !== event.eventId",
    replace: "hold.dead",
    seenBy: { file: "test/outbox/HeldRows.test.ts", test: "a late answer for a published" }
  },
  {
    name: "lost-fault-point",
    breaks: "a crash asked for between an append and its commit never comes",
    file: "src/outbox/Outbox.ts",
    find: `Effect.andThen(faults.at("outbox.after-append"), afterCommit(wakes[lane] ?? Effect.void))`,
    replace: "afterCommit(wakes[lane] ?? Effect.void)",
    seenBy: { file: "test/outbox/Outbox.test.ts", test: "a failure outbox.after-append" }
  },
  {
    name: "ignores-the-pause",
    breaks: "events behind the backlog of an unavailable topic are never fetched",
    file: "src/outbox/Queue.ts",
    find: "${topics.length === 0 ? sql`` : withoutTopics}",
    replace: "",
    seenBy: { file: "test/guards/Pauses.test.ts", test: "events behind the backlog of" }
  },
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
    name: "skips-and-sleeps",
    breaks: "events behind one that is dead at its first refusal, and skipped, wait for the next poll",
    file: dispatcher,
    find: "return hasReturned || ",
    replace: "return ",
    seenBy: { file: "test/outbox/HoldRetries.test.ts", test: "a turn in which an event was skipped" }
  },
  {
    name: "sends-at-each-look",
    breaks:
      "a refused event that the broker accepts and Postgres can't mark is sent again in each round, without a backoff",
    file: "src/outbox/holds/HoldRetries.ts",
    find: "Math.max(dueMillis, (failing.get(lane)?.untilMillis ?? 0) - now)",
    replace: "dueMillis",
    seenBy: { file: "test/outbox/HoldRetries.test.ts", test: "an event that the broker" }
  },
  {
    name: "looks-at-disorder-by-the-poll",
    breaks: "a repaired aggregate waits for the next poll, whose interval may be minutes",
    file: "src/guards/OutOfOrderVersions.ts",
    find: "yield* looks.after(waitMillis)",
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
    find: "Effect.andThen(looks.now, holds.changed.open)",
    replace: "looks.now",
    seenBy: { file: "test/outbox/HoldRetries.test.ts", test: "a due event whose partition's" }
  },
  {
    name: "well-by-another-one",
    breaks: "an answer for one refused event resets the failures of another one, which can't be marked",
    file: "src/outbox/holds/HoldRetries.ts",
    find: "if (!isDue && failing.get(lane) === before) failing.delete(lane)",
    replace: "if (failing.get(lane) === before) failing.delete(lane)",
    seenBy: { file: "test/outbox/HoldRetries.test.ts", test: "an answer for another" }
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
    name: "cuts-them-all",
    breaks: "one broker that does not answer cuts off the sends to all the others",
    file: "src/brokers/kafkajs/KafkaProducer.ts",
    find: "if (isApart || !sender.isConnected) {",
    replace: "{",
    seenBy: { file: "test/brokers/kafkajs/KafkaBrokerLeaders.test.ts", test: "a broker that swallows" }
  },
  {
    name: "a-part-for-the-whole",
    breaks: "a partition without a leader stops its whole topic in every process that asks for its metadata",
    file: "src/brokers/kafkajs/patches/Metadata.ts",
    find: "partition.partitionErrorCode === leaderNotAvailable",
    replace: "partition.partitionErrorCode === 0",
    seenBy: { file: "test/brokers/kafkajs/KafkaBrokerLeaders.test.ts", test: "while half of a topic's partitions" }
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
    name: "nobody-can-so-nobody-has",
    breaks: "in an outage of the broker all members give their lanes up, and no lane has an owner when it is over",
    file: "src/platform/OwnershipLocks.ts",
    find: "dealtTo: able.length > 0 ? able : members",
    replace: "dealtTo: able",
    seenBy: { file: "test/platform/Ownership.test.ts", test: "a member that can't use its slots leaves" }
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
    find: "limit.untilMillis <= now",
    replace: "limit.untilMillis <= 0",
    seenBy: { file: "test/outbox/RefusedEvents.test.ts", test: "a topic's limit is remembered for" }
  },
  {
    name: "mended-and-told-of",
    breaks: "health still reports a topic's setting that was mended, if the topic was not named at the start",
    file: "src/operations/TopicChecks.ts",
    find: "[...topics, ...others]",
    replace: "topics",
    seenBy: { file: "test/operations/TopicChecks.test.ts", test: "an unsafe topic is checked again" }
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
    name: "tells-of-what-is-done",
    breaks: "health still reports a refused event that could not be marked, long after it was marked",
    file: "src/outbox/holds/HoldRetries.ts",
    find: "one.lane === lane && one.isDue",
    replace: "one.lane === lane",
    seenBy: { file: "test/outbox/HoldRetries.test.ts", test: "its failure is no longer reported once" }
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
    name: "tells-of-lanes-of-others",
    breaks: "health still reports a failed lane that another process owns now",
    file: "src/outbox/StoppedLanes.ts",
    find: "if (options.owns(lane)) {",
    replace: "{",
    seenBy: { file: "test/outbox/LaneWorkers.test.ts", test: "a lane that is lost while its turn ends" }
  },
  {
    name: "waits-by-the-wall-clock",
    breaks: "if the wall clock is set back by an hour, every pause lasts an hour longer",
    file: "src/platform/Monotonic.ts",
    find: "Effect.map(Clock.monotonicTimeNanos",
    replace: "Effect.map(Clock.currentTimeNanos",
    seenBy: { file: "test/guards/PauseRules.test.ts", test: "a wall clock that" }
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
    name: "counts-what-was-not-sent",
    breaks: "the metric of failed events grows by whole batches, although most of their events were published",
    file: metrics,
    find: "count(failedTotal, batch.events, { reason",
    replace: "count(failedTotal, [...batch.events, ...batch.events], { reason",
    seenBy: { file: "test/guards/Pauses.test.ts", test: "of a batch in parts" }
  },
  {
    name: "only-the-poll-looks",
    breaks: "after an outage of a moment its events wait for the next poll, whose interval may be minutes",
    file: partitionPauses,
    find: "looks.after(millis)",
    replace: "Effect.void",
    seenBy: { file: "test/outbox/LaneWorkers.test.ts", test: "what an outage stopped" }
  },
  {
    name: "only-the-poll-looks-at-lanes",
    breaks: "after a defect of a moment its lane waits for the next poll",
    file: "src/outbox/StoppedLanes.ts",
    find: "yield* options.wakeAfter(waitMillis)",
    replace: "",
    seenBy: { file: "test/outbox/LaneWorkers.test.ts", test: "what a defect stopped" }
  },
  {
    name: "unwell-for-ever",
    breaks: "health still reports a lane that failed, and has nothing left to send, until its next event",
    file: laneWorkers,
    find: "new Set([...ready, ...failed.map(({ lane }) => lane)])",
    replace: "new Set(ready)",
    seenBy: { file: "test/outbox/LaneWorkers.test.ts", test: "a lane that failed and has nothing left" }
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
  },
  {
    name: "reads-names-together",
    breaks: "two aggregates with equal type and id when joined are taken for one with out-of-order versions, and stop",
    file: "src/outbox/Queue.ts",
    find: "`${aggregateType}\\0${aggregateId}`",
    replace: "`${aggregateType} ${aggregateId}`",
    seenBy: { file: "test/guards/OutOfOrderVersions.test.ts", test: "aggregates are told apart by type" }
  },
  {
    name: "steps-over-it-each-time",
    breaks: "in an outage each fetch for the healthy topics reads the whole backlog, and loads Postgres",
    file: laneFloors,
    find: "yield* raiseBeside(lanes, topicsOf, found)",
    replace: "",
    seenBy: { file: "test/postgres/fast/LowWaterMarks.test.ts", test: "a backlog that can't be sent is passed" }
  },
  {
    name: "floor-over-what-comes-back",
    breaks:
      "a refused event that returns into the middle of an unavailable topic's backlog waits until that can be sent",
    file: laneFloors,
    find: "places.filter(({ table }) => table !== queueTable)",
    replace: "places.slice(0, 0)",
    seenBy: { file: "test/postgres/fast/LowWaterMarks.test.ts", test: "a low-water mark that leaves out a topic does" }
  },
  {
    name: "begins-behind-what-it-wants",
    breaks: "a fetch that leaves out no topic begins behind the backlog of a topic that was unavailable",
    file: laneFloors,
    find: "higher.topics.every((topic) => leftOut.includes(topic))",
    replace: "true",
    seenBy: { file: "test/postgres/fast/LowWaterMarks.test.ts", test: "a backlog that can't be sent is passed" }
  },
  {
    name: "raises-what-was-lost",
    breaks: "a lane that was lost and comes back is fetched from behind a row that a crash has put back",
    file: laneFloors,
    find: "    if (forgotten !== before) return\n    if (rows",
    replace: "    if (rows",
    seenBy: { file: "test/postgres/fast/LowWaterMarks.test.ts", test: "a lane that is lost while its low-water" }
  },
  {
    name: "parks-in-front-of-all",
    breaks: "events of a held aggregate make its lane wait until the last of them is parked",
    file: dispatcher,
    find: "ofHeld.length > 0 && isCut",
    replace: "ofHeld.length < 0 && isCut",
    seenBy: { file: "test/outbox/HeldRows.test.ts", test: "however many events a held aggregate has in the" }
  },
  {
    name: "moves-rows-of-any-size",
    breaks:
      "an aggregate with large events behind its refused one can neither be held nor released: the statement takes longer than a socket waits",
    file: "src/outbox/holds/HeldRows.ts",
    find: "const moveBytes = 4_000_000",
    replace: "const moveBytes = 4_000_000_000",
    seenBy: { file: "test/outbox/HeldRows.test.ts", test: "an aggregate with large events behind a refused one" }
  },
  {
    name: "broken-hold-stops-its-lane",
    breaks: "a hold in an invalid state keeps every other held aggregate of its lane from being tried",
    file: "src/outbox/holds/Parking.ts",
    find: "return rows.filter((row) => row.isFirst)",
    replace: "return rows.every((row) => row.isFirst) ? rows : []",
    seenBy: { file: "test/outbox/HeldRows.test.ts", test: "a hold with an earlier event parked behind" }
  },
  {
    name: "buries-under-a-taken-id",
    breaks: "a refused event whose id a dead letter has is sent again and again, without a pause",
    file: "src/outbox/holds/Parking.ts",
    find: " || (yield* HeldRows.isBuried(hold.eventId))",
    replace: "",
    seenBy: { file: "test/outbox/HeldRows.test.ts", test: "a refused event whose id a dead letter already" }
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
    name: "no-timer-for-retries",
    breaks: "a refused event is retried by the next poll, however long ago it was due",
    file: "src/outbox/holds/HoldRetries.ts",
    find: `if (millis > 0) waitMillis = Math.min(waitMillis, Math.ceil(millis))
        else `,
    replace: "if (millis <= 0) ",
    seenBy: { file: "test/outbox/HoldRetries.test.ts", test: "a refused event is retried when it is due, without" }
  },
  {
    name: "lane-sleeps-after-a-refusal",
    breaks: "events behind a refused one in its lane wait for the refused event's delay",
    file: dispatcher,
    find: 'yield* faults.at("dispatcher.after-hold")',
    replace: 'yield* Effect.interruptible(Effect.sleep("1 hour"))',
    seenBy: { file: "test/outbox/RefusedEvents.test.ts", test: "no other partition waits for a send" }
  },
  {
    name: "lane-sleeps-after-a-retry",
    breaks: "a lane waits when one of its refused events is refused again",
    file: dispatcher,
    find: "yield* holds.rejected(head, error)",
    replace: 'yield* Effect.andThen(holds.rejected(head, error), Effect.interruptible(Effect.sleep("1 hour")))',
    seenBy: { file: "test/outbox/RefusedEvents.test.ts", test: "no other partition waits for a send" }
  },
  {
    name: "refusal-without-names",
    breaks: "the log line about a refused event does not name the event",
    file: "src/outbox/holds/RefusalLog.ts",
    find: `      event_id: event.eventId,
      event_type: event.eventType,
      aggregate_id: event.aggregateId,
      trace_id: event.traceId,
      attempt,
`,
    replace: "",
    seenBy: { file: "test/outbox/RefusedEvents.test.ts", test: "each refusal leaves a line in the log" }
  },
  {
    name: "refusal-without-trace",
    breaks: "the log line about a refused event has no trace id of its request",
    file: "src/outbox/holds/RefusalLog.ts",
    find: "trace_id: event.traceId,\n      attempt",
    replace: "attempt",
    seenBy: { file: "test/outbox/RefusedEvents.test.ts", test: "each refusal leaves a line in the log" }
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
    name: "lane-fails-unseen",
    breaks: "lanes that end in a defect are not counted, and no rule can warn of them",
    file: "src/outbox/StoppedLanes.ts",
    find: `yield* Metric.update(laneFailuresTotal, 1)
`,
    replace: `
`,
    seenBy: { file: "test/outbox/LaneWorkers.test.ts", test: "a lane that ends in a defect" }
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
