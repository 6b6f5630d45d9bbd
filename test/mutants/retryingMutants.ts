/** Mistakes of one line in what operators are told of things that are tried again, or not known. */
import type { Mutant } from "./mutants.ts"

const reports = "test/operations/Reports.test.ts"
const live = "test/console/Live.test.ts"
const verdict = "test/http/Verdict.test.ts"

export const retryingMutants: ReadonlyArray<Mutant> = [
  {
    name: "counts-a-retried-event-as-parked",
    breaks: "an event that is tried again reads as one that waits behind another",
    file: "src/operations/reports/InboxReport.ts",
    find: "(h.consumer_name, h.aggregate_id, h.event_id) = (p.consumer_name, p.aggregate_id, p.event_id)",
    replace: "FALSE",
    seenBy: { file: reports, test: "an event that a consumer applied in the end keeps its failures" }
  },
  {
    name: "calls-a-retrying-consumer-healthy",
    breaks: "the verdict says that all is well while a consumer tries an event again and again",
    file: "src/http/admin/Verdict.ts",
    find: "  findings.push(...ofRetries(status))\n",
    replace: "",
    seenBy: { file: verdict, test: "the verdict of" }
  },
  {
    name: "degraded-by-a-mail",
    breaks: "one mail to a mailbox that is full reads as trouble of the service for days",
    file: "src/http/admin/Verdict.ts",
    find: 'plural(count, "is retried", "are retried"), sinceSeconds, null),\n      isMeant: true as const',
    replace: 'plural(count, "is retried", "are retried"), sinceSeconds, null)',
    seenBy: { file: verdict, test: "the verdict of" }
  },
  {
    name: "header-of-before",
    breaks: "the header of a page says that a dead service is ready",
    file: "src/console/shell.js",
    find: 'connection === "stale" ? "not known" : ',
    replace: "",
    seenBy: { file: live, test: "a service that dies is said to be away" }
  },
  {
    name: "no-rate-means-no-consumer",
    breaks: "a service that has just started says that it has no consumers",
    file: "src/console/pages/overview/Tiles.js",
    find: "effects(sample) === null ? untold(overview) : counted(overview.consumers.length,",
    replace: "counted(Object.keys(sample.effectsPerSecond).length,",
    seenBy: { file: live, test: "figures come over the stream" }
  },
  {
    name: "two-words-for-one-state-of-a-task",
    breaks: "a task that is tried again has another word in its list than in the counts",
    file: "src/operations/reports/TaskReport.ts",
    find: 'state: of.state === "failed" ? "retrying" : of.state',
    replace: "state: of.state as State",
    seenBy: { file: "test/operations/TasksCommand.test.ts", test: "lists are pages, the newest first" }
  },
  {
    name: "cancels-what-waits-alone",
    breaks: "a mail that has failed once is sent, though all of its type were cancelled",
    file: "src/operations/reports/TaskReport.ts",
    find: '(${inState("pending")} OR ${inState("retrying")})',
    replace: '(${inState("pending")})',
    seenBy: { file: "test/operations/TasksCommand.test.ts", test: "lists are pages, the newest first" }
  }
]
