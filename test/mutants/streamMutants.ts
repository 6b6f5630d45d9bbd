/** Mistakes of one line in what a person on call sees: the overview, its stream, the lanes, and an order's journey. */
import type { Mutant } from "./mutants.ts"

const liveStream = "src/http/admin/LiveStream.ts"
const streamTest = "test/http/AdminStream.test.ts"
const overviewTest = "test/http/AdminOverview.test.ts"
const journeyTest = "test/http/Journey.test.ts"

export const streamMutants: ReadonlyArray<Mutant> = [
  {
    name: "charts-begin-with-the-look",
    breaks: "a person on call does not see what happened before the page was opened",
    file: liveStream,
    find: "id - since <= gapMillis ? []",
    replace: "id - since <= Infinity ? []",
    seenBy: { file: streamTest, test: "what was paid and published before somebody looked" }
  },
  {
    name: "backlog-of-before-left-out",
    breaks: "the chart shows no publishing while an outage's backlog was sent",
    file: "src/application/views/PaceReport.ts",
    find: "FROM events, span WHERE published_at >= since GROUP BY 1",
    replace: "FROM events, span WHERE occurred_at >= since + interval '10 minutes' GROUP BY 1",
    seenBy: { file: streamTest, test: "what was paid and published before somebody looked" }
  },
  {
    name: "reads-for-nobody",
    breaks: "the database is read for ever once a page was open",
    file: liveStream,
    find: "(now) => !isOver && (listeners.size > 0 || now - lastLeftMillis < lingerMillis)",
    replace: "() => !isOver",
    seenBy: { file: streamTest, test: "a page that is alone and reconnects" }
  },
  {
    name: "forgets-what-was-missed",
    breaks: "a page that reconnects has a gap in its charts",
    file: liveStream,
    find: "after === undefined || id > after",
    replace: "after === undefined",
    seenBy: { file: streamTest, test: "a listener that comes back with the last id" }
  },
  {
    name: "repeats-what-was-seen",
    breaks: "a page that reconnects gets the whole history again",
    file: liveStream,
    find: "after === undefined || id > after",
    replace: "true",
    seenBy: { file: streamTest, test: "a listener that comes back with the last id" }
  },
  {
    name: "listeners-without-a-bound",
    breaks: "any number of pages is let in",
    file: liveStream,
    find: "if (listeners.size >= maxListeners) return yield* tooMany(maxListeners)",
    replace: "",
    seenBy: { file: streamTest, test: "above the bound a listener is refused" }
  },
  {
    name: "keeps-the-deaf",
    breaks: "a connection that nobody reads stays open for ever",
    file: liveStream,
    find: "listener.cut()",
    replace: "",
    seenBy: { file: streamTest, test: "a listener that does not read is cut" }
  },
  {
    name: "stops-after-the-last-page",
    breaks: "a stop waits its whole grace for open pages",
    file: liveStream,
    find: "for (const listener of listeners) end(listener)",
    replace: "",
    seenBy: { file: streamTest, test: "a stop says bye to those who listen" }
  },
  {
    name: "silent-streams",
    breaks: "a proxy cuts a stream while figures can't be read",
    file: liveStream,
    find: "if (!sentSinceHeartbeat) send(heartbeat)",
    replace: "",
    seenBy: { file: streamTest, test: "a silent stream is kept open" }
  },
  {
    name: "streams-hold-places",
    breaks: "open pages take the places of requests",
    file: "src/http/Admission.ts",
    find: "if (Exit.isSuccess(exit) && isEndless(exit.value)) done()",
    replace: "if (false) done()",
    seenBy: { file: streamTest, test: "a HEAD request joins nobody" }
  },
  {
    name: "outlives-its-session",
    breaks: "a page that was signed out goes on to listen",
    file: "src/http/admin/LiveHandlers.ts",
    find: "ended: credentials.ended(req)",
    replace: "ended: Effect.never",
    seenBy: { file: streamTest, test: "a stream of a session ends with it" }
  },
  {
    name: "lanes-of-nobody",
    breaks: "nobody sees which process sends a lane",
    file: "src/operations/reports/LaneReport.ts",
    find: "owner: owners.get(lane) ?? null",
    replace: "owner: null",
    seenBy: { file: overviewTest, test: "the lanes of two processes are told apart" }
  },
  {
    name: "decides-twice",
    breaks: "a dead mail is counted as a dead task, too",
    file: "src/application/views/StatusReport.ts",
    find: "type === emailType.name ? Math.max(0, count - mail.dead) : count",
    replace: "count",
    seenBy: { file: overviewTest, test: "what needs a decision is counted once" }
  },
  {
    name: "says-all-is-well",
    breaks: "events that no process sends are not spoken of",
    file: "src/http/admin/Verdict.ts",
    find: "owner === null && (oldestReadySeconds ?? 0) > 1",
    replace: "owner !== null && (oldestReadySeconds ?? 0) > 1",
    seenBy: { file: overviewTest, test: "without a dispatcher the verdict says" }
  },
  {
    name: "hides-the-dead-behind-the-waiting",
    breaks: "an order that needs a person looks as if it only waited",
    file: "src/application/views/JourneyLegs.ts",
    find: `severity.find((state)`,
    replace: `severity.toReversed().find((state)`,
    seenBy: { file: journeyTest, test: "a paused consumer, and one that gives an event up" }
  }
]
