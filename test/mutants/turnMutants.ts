/** Mistakes in how a turn of the dispatcher gathers events, and in the requests that carry its batches. */
import type { Mutant } from "./mutants.ts"

const gathering = "src/outbox/Gathering.ts"
const pipeline = "src/outbox/Pipeline.ts"
const flights = "src/outbox/Flights.ts"
const flightsTest = "test/outbox/Flights.test.ts"
const laneWatch = "src/postgres/fast/LaneWatch.ts"
const quietWakeups = "src/postgres/fast/QuietWakeups.ts"
const quietTest = "test/postgres/fast/QuietWakeups.test.ts"
const gatheringTest = "test/outbox/Gathering.test.ts"
const smallTurns = "src/postgres/fast/SmallTurns.ts"
const smallTurnsTest = "test/postgres/fast/SmallTurns.test.ts"
const requests = "src/brokers/kafkajs/patches/ProduceRequests.ts"
const requestsTest = "test/brokers/kafkajs/ProduceRequests.test.ts"

export const turnMutants: ReadonlyArray<Mutant> = [
  {
    name: "looks-end-with-the-watch",
    breaks:
      "an event that another process wrote without a wake-up, just before it read that its lane is watched no more, waits for the poll",
    file: laneWatch,
    find: "const tailMillis = 2 * WatchedLanes.quietMillis",
    replace: "const tailMillis = 0 * WatchedLanes.quietMillis",
    seenBy: { file: "test/postgres/fast/LaneWatch.test.ts", test: "few events end it" }
  },
  {
    name: "looks-end-before-others-are-told",
    breaks: "while Postgres does not answer, a lane is quiet that nobody looks at",
    file: laneWatch,
    find: "isOn = mayBeRead = true",
    replace: "isOn = true",
    seenBy: { file: "test/postgres/fast/LaneWatch.test.ts", test: "few events end it" }
  },
  {
    name: "quiet-about-all-lanes",
    breaks: "each event of a process that does not dispatch waits for the poll",
    file: "src/postgres/fast/WatchedLanes.ts",
    find: "WHERE NOT pg_try_advisory_xact_lock_shared",
    replace: "WHERE pg_try_advisory_xact_lock_shared",
    seenBy: { file: quietTest, test: "wake-ups of a watched lane are not sent" }
  },
  {
    name: "quiet-about-its-own-lane",
    breaks: "an event waits for the poll where its lane has just come to its own process",
    file: quietWakeups,
    find: "if (owns(lane)) return",
    replace: "if (owns(lane) && false) return",
    seenBy: { file: quietTest, test: "a lane that this process owns is woken here" }
  },
  {
    name: "a-turn-for-each-event",
    breaks: "at a steady rate each event costs a fetch, a send and a mark of its own",
    file: gathering,
    find: "latch.isOpen() ? Effect.void",
    replace: "true ? Effect.void",
    seenBy: { file: gatheringTest, test: "lanes that become ready during a send" }
  },
  {
    name: "fetches-as-fast-as-it-can",
    breaks: "at a steady rate nearly each event has a turn of its own, and costs more CPU",
    file: gathering,
    find: "return left >= leastWaitMillis",
    replace: "return left > Infinity",
    seenBy: { file: gatheringTest, test: "lanes that become ready soon after a fetch" }
  },
  {
    name: "a-generator-function-for-each-turn",
    breaks: "what each turn has captured stays until V8 collects the whole heap, which keeps all events waiting",
    file: pipeline,
    find: "lanes.length === 0 ? markAll : fetchAndMark(lanes)",
    replace: "Effect.gen(function* () { yield* lanes.length === 0 ? markAll : fetchAndMark(lanes) })",
    seenBy: { file: "test/outbox/OldHeap.test.ts", test: "a turn leaves nothing in the old heap" }
  },
  {
    name: "a-limit-that-never-ends-a-wait",
    breaks: "a send to a broker that does not answer hangs its partition for ever",
    file: "src/platform/SharedTimeout.ts",
    find: "      wait.end()\n",
    replace: "",
    seenBy: { file: "test/platform/SharedTimeout.test.ts", test: "ends each wait at its own limit" }
  },
  {
    name: "a-limit-that-looks-for-ever",
    breaks: "a service with nothing to do takes a whole processor",
    file: "src/platform/SharedTimeout.ts",
    find: "    hasWaits.closeUnsafe()\n",
    replace: "",
    seenBy: { file: "test/platform/SharedTimeout.test.ts", test: "costs nothing while nobody waits" }
  },
  {
    name: "marks-have-turns-of-their-own",
    breaks: "at a steady rate each acknowledgement has a mark and a packet of its own",
    file: pipeline,
    find: "flights.deep.size > 0 ||",
    replace: "flights.deep.size > 0 || marks.length > 0 ||",
    seenBy: { file: gatheringTest, test: "acknowledgements wait while fetches go on" }
  },
  {
    name: "marks-with-each-fetch",
    breaks: "at a steady rate each fetch has a mark behind it, and the CPU of an event is a tenth more",
    file: gathering,
    find: "() => now() >= acknowledgedMillis + markMillis",
    replace: "() => true",
    seenBy: { file: gatheringTest, test: "acknowledgements wait while fetches go on" }
  },
  {
    name: "marks-before-it-sends",
    breaks: "at a steady rate each seventh turn or so is twice as long until its events are sent",
    file: pipeline,
    find: "      handOver(yield* fetch)\n",
    replace: "      const fetched = yield* fetch\n      yield* markAll\n      handOver(fetched)\n",
    seenBy: { file: gatheringTest, test: "what a turn has fetched is sent before its mark" }
  },
  {
    name: "sends-beside-a-mark-that-fails",
    breaks:
      "while Postgres takes no mark, each turn sends what it has fetched, and after a crash all of that is sent twice",
    file: pipeline,
    find: "      yield* Fiber.join(marking)\n      handOver(yield* fetched)\n",
    replace: "      handOver(yield* fetched)\n      yield* Fiber.join(marking)\n",
    seenBy: { file: "test/outbox/PipelineFailures.test.ts", test: "while no mark succeeds, nothing more is sent" }
  },
  {
    name: "sends-though-no-mark-succeeds",
    breaks: "while Postgres takes no mark, events are sent on and on, and after a crash all of them are sent twice",
    file: pipeline,
    find: "mark.hasFailed || mark.isDone !== undefined",
    replace: "mark.isDone !== undefined",
    seenBy: { file: "test/outbox/PipelineFailures.test.ts", test: "while no mark succeeds, nothing more is sent" }
  },
  {
    name: "marks-behind-no-fetch",
    breaks: "while fetches go on, nothing is marked before there is a batch of it",
    file: gathering,
    find: "() => now() >= acknowledgedMillis + markMillis",
    replace: "() => false",
    seenBy: { file: gatheringTest, test: "acknowledgements that have waited long enough" }
  },
  {
    name: "marks-that-grow",
    breaks: "at a high rate each fetch reads thousands of rows again that were sent already",
    file: gathering,
    find: "(load: number) => load >= mostUnmarked",
    replace: "(_: number) => false",
    seenBy: { file: gatheringTest, test: "many acknowledgements don't wait" }
  },
  {
    name: "forgets-marks-that-wait",
    breaks:
      "what waited during the last fetch is marked when the next event comes, and after a crash it is sent once more",
    file: pipeline,
    find: "if (marks.length > 0) flights.isReady.openUnsafe()",
    replace: "",
    seenBy: { file: gatheringTest, test: "acknowledgements that waited during the last fetch" }
  },
  {
    name: "marks-before-the-senders-write",
    breaks:
      "at a steady rate each seventh turn or so sends its events later by all that a mark's statement takes to be made and written",
    file: pipeline,
    find: "Effect.andThen(Effect.yieldNow, markAll)",
    replace: "markAll",
    seenBy: { file: gatheringTest, test: "what a turn has fetched is sent before its mark" }
  },
  {
    name: "marks-what-was-just-sent",
    breaks:
      "with a fast broker each turn after a mark marks its own events alone, and each empty look takes a turn of the event loop more",
    file: pipeline,
    find: "marks.length > 0 && (isUrgent() || gathering.areMarksDue())",
    replace: "isUrgent() || gathering.areMarksDue()",
    seenBy: { file: gatheringTest, test: "an acknowledgement that comes at once waits for others" }
  },
  {
    name: "asks-for-what-waits",
    breaks: "Postgres sends each event three or four times, and nobody sees it, for the dispatcher leaves it out",
    file: "src/postgres/fast/LowWaterMarks.ts",
    find: "queue.fetch(from(parts), without)",
    replace: "queue.fetch(from(parts))",
    seenBy: { file: gatheringTest, test: "is passed over by a fetch through all decorators" }
  },
  {
    name: "waits-for-a-timer-in-vain",
    breaks: "at a steady rate each second look or so is followed by a fetch one millisecond later than it could be",
    file: gathering,
    find: "return left >= leastWaitMillis",
    replace: "return left > 0",
    seenBy: { file: gatheringTest, test: "less than a millisecond is not waited for" }
  },
  {
    name: "reads-again-what-waits",
    breaks: "at a steady rate each event comes from Postgres with three or four turns, until it is marked",
    file: smallTurns,
    find: "e.seq <> ALL ($5::int8[])",
    replace: "e.seq <> ALL (($5::int8[])[1:0])",
    seenBy: { file: smallTurnsTest, test: "what waits for its mark is not read again" }
  },
  {
    name: "sends-again-what-waits",
    breaks: "an event is sent with each turn until it is marked",
    file: pipeline,
    find: "fetchReady(lanes, new Set(waiting.map(({ seq }) => seq)))",
    replace: "fetchReady(lanes, new Set())",
    seenBy: { file: gatheringTest, test: "what waits for its mark is not sent again" }
  },
  {
    name: "each-acknowledgement-prolongs-the-wait",
    breaks: "at a steady rate marks wait until there are many, and after a crash all of them are sent once more",
    file: pipeline,
    find: "if (marks.length === 0) gathering.acknowledged()",
    replace: "gathering.acknowledged()",
    seenBy: { file: gatheringTest, test: "the wait begins with the first of them" }
  },
  {
    name: "one-batch-of-a-partition-is-measured",
    breaks: "of two batches that are marked together the slower one is not in the metric, nor in its alert",
    file: "src/operations/OutboxMetrics.ts",
    find: "[`${topic}/${receipt.partition}/${began}`, began]",
    replace: "[`${topic}/${receipt.partition}`, began]",
    seenBy: { file: "test/operations/OutboxMetrics.test.ts", test: "a batch is measured from its own fetch" }
  },
  {
    name: "refused-behind-an-unmarked-event",
    breaks: "a refused event is not held, and waits for the next event of its lane or for the poll",
    file: "src/outbox/Dispatcher.ts",
    find: "yield* during.mark([])",
    replace: "",
    seenBy: { file: gatheringTest, test: "a refused event is held at once" }
  },
  {
    name: "as-close-with-many-events",
    breaks: "at 2,000 events a second a turn has half as many, and their CPU is a quarter more",
    file: gathering,
    find: "events < many ?",
    replace: "events < Infinity ?",
    seenBy: { file: gatheringTest, test: "after a fetch that found many events" }
  },
  {
    name: "gathers-until-all-are-sent",
    breaks: "one partition without an answer stops all others",
    file: gathering,
    find: "Effect.raceFirst(latch.await, Effect.sleep(Math.max(0, mostMillis)))",
    replace: "latch.await",
    seenBy: { file: gatheringTest, test: "a send without an answer delays the other partitions" }
  },
  {
    name: "eight-lanes-a-round",
    breaks: "lanes with few events wait for many rounds of one with a backlog",
    file: flights,
    find: "if (deep.has(lane) && ++deepLanes > deepLimit) continue",
    replace: "if (lanes.length >= 8) continue",
    seenBy: { file: "test/outbox/LaneWorkers.test.ts", test: "a hot lane can't starve the others" }
  },
  {
    name: "waits-for-sends-from-then-on",
    breaks: "a send without an answer keeps the other partitions waiting for the distance of two fetches longer",
    file: gathering,
    find: "opened(areSent, longestMillis - left)",
    replace: "opened(areSent, longestMillis)",
    seenBy: { file: gatheringTest, test: "a send that outlasts the distance" }
  },
  {
    name: "gathers-no-sends-after-a-fetch",
    breaks: "at a steady rate a turn begins while sends of the last one are in flight, and takes fewer events",
    file: gathering,
    find: "opened(areSent, longestMillis - left)",
    replace: "opened(areSent, 0)",
    seenBy: { file: gatheringTest, test: "a send that outlasts the distance" }
  },
  {
    name: "a-mark-of-its-own",
    breaks: "at a low rate each event costs a turn more",
    file: pipeline,
    find: "if (!flights.hasReady()) flights.isReady.closeUnsafe()",
    replace: "",
    seenBy: { file: gatheringTest, test: "acknowledgements wait while fetches go on" }
  },
  {
    name: "a-mark-waits-for-ever",
    breaks: "the last events before a pause are sent once more after a crash, however long ago they were sent",
    file: gathering,
    find: "opened(isReady, acknowledgedMillis + markMillis - now())",
    replace: "isReady.await",
    seenBy: { file: gatheringTest, test: "acknowledgements wait for a lane that is ready" }
  },
  {
    name: "an-urgent-mark-beside-a-waiting-one",
    breaks: "each piece of a refused batch waits for as long as a mark does",
    file: pipeline,
    find: "if (marks.length === 1 || isUrgent())",
    replace: "if (marks.length === 1)",
    seenBy: { file: gatheringTest, test: "a refused batch's pieces don't wait" }
  },
  {
    name: "published-when-marked",
    breaks: "the console shows the wait of a mark as the time that the broker took",
    file: "src/outbox/MarkStatements.ts",
    find: "clock.now - age_millis * interval '1 ms'",
    replace: "clock.now",
    seenBy: { file: smallTurnsTest, test: "either mark archives each event with the time" }
  },
  {
    name: "published-when-marked-in-a-small-turn",
    breaks: "the console shows the wait of a mark as the time that the broker took",
    file: smallTurns,
    find: "const age = ageMillis?.() ?? 0",
    replace: "const age = 0",
    seenBy: { file: smallTurnsTest, test: "either mark archives each event with the time" }
  },
  {
    name: "an-age-that-does-not-grow",
    breaks: "the console shows the wait of a mark as the time that the broker took",
    file: "src/outbox/Publisher.ts",
    find: "Math.round(Monotonic.millisUnsafe(clock) - atMillis)",
    replace: "Math.round(atMillis - atMillis)",
    seenBy: { file: gatheringTest, test: "the archive has the time of an acknowledgement" }
  },
  {
    name: "a-packet-each",
    breaks: "under load a turn costs two packets to Postgres, and two of its processes wake up",
    file: "src/Dispatching.ts",
    find: "isPipelined: true",
    replace: "isPipelined: false",
    seenBy: { file: "test/outbox/TurnConnection.test.ts", test: "a mark and a fetch of one moment" }
  },
  {
    name: "late-marks-before-the-turns",
    breaks: "a lock on one lane's rows keeps all lanes waiting, at each attempt",
    file: pipeline,
    find: "Effect.provideService(TurnConnection, undefined)",
    replace: "Effect.asVoid",
    seenBy: { file: "test/outbox/PipelineFailures.test.ts", test: "a mark that failed and is tried again keeps" }
  },
  {
    name: "sends-what-is-being-marked",
    breaks: "an event is sent twice without any failure, if its mark ends after the lane's next fetch",
    file: pipeline,
    find: "dispatcher.fetch(parts, without)",
    replace: "dispatcher.fetch(parts)",
    seenBy: { file: "test/outbox/Pipeline.test.ts", test: "a lane is fetched again before its last batch is marked" }
  },
  {
    name: "waits-for-its-mark",
    breaks: "a lane with events waits for one turn more after each batch",
    file: flights,
    find: "else if (hasMore(lane, flight)) wake([lane])",
    replace: "",
    seenBy: { file: flightsTest, test: "a lane that waits for its mark alone" }
  },
  {
    name: "given-up-without-its-mark",
    breaks: "the lane's next owner sends what is acknowledged and not yet marked",
    file: flights,
    find: "if (isInFlight(flight)) options.leave(lane)",
    replace: "options.leave(lane)",
    seenBy: { file: flightsTest, test: "a lane that waits for its mark alone" }
  },
  {
    name: "fails-for-ever",
    breaks: "a lane that has failed once is not sent any more until the process restarts",
    file: flights,
    find: "    flight.isFailed = false\n",
    replace: "",
    seenBy: { file: flightsTest, test: "a lane that has failed is not fetched again before its mark" }
  },
  {
    name: "fails-and-flies-on",
    breaks: "a lane that fails at each attempt is tried again without a wait",
    file: flights,
    find: "flight.open > 0 || flight.isFailed",
    replace: "flight.open > 0",
    seenBy: { file: flightsTest, test: "a lane that has failed is not fetched again" }
  },
  {
    name: "busy-and-never-healthy",
    breaks: "a lane that has failed once is reported as stopped for as long as it is busy",
    file: flights,
    find: "else if (flight.earlier > 0 && --flight.earlier === 0 && !flight.isFailed) options.stopped.forget(lane)",
    replace: "",
    seenBy: { file: flightsTest, test: "a lane that is never without a batch" }
  },
  {
    name: "part-of-a-round-heals",
    breaks: "a lane of which one topic fails each time is tried again without growing waits",
    file: flights,
    find: "else if (flight.earlier > 0 && --flight.earlier === 0 && !flight.isFailed)",
    replace: "else if (!flight.isFailed)",
    seenBy: { file: flightsTest, test: "a lane that fails in each round waits longer" }
  },
  {
    name: "ready-though-failed",
    breaks: "a lane whose mark has just failed is tried again without its wait",
    file: flights,
    find: "if (flight.isFailed) ready.delete(lane)",
    replace: "if (flight.isFailed) ready.has(lane)",
    seenBy: { file: flightsTest, test: "a lane that was ready again before its mark failed" }
  },
  {
    name: "one-error-fails-all-partitions",
    breaks: "a batch that the broker refuses takes the batches of its request with it",
    file: requests,
    find: "answers.filter((answer) => !isExact || answer.partition === partition)",
    replace: "answers",
    seenBy: { file: requestsTest, test: "batches of several partitions share a request" }
  },
  {
    name: "confirms-what-was-not-named",
    breaks: "a batch that the broker does not name is taken for stored",
    file: requests,
    find: "answers.length === parts.length &&",
    replace: "",
    seenBy: { file: requestsTest, test: "a response that lacks a partition" }
  },
  {
    name: "writes-what-was-given-up",
    breaks: "a batch is written after its send was given up, behind a newer one",
    file: requests,
    find: "return !sending.isGivenUp",
    replace: "return true",
    seenBy: { file: requestsTest, test: "a batch that was given up is not written" }
  }
]
