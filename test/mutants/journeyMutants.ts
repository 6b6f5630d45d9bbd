/** Mistakes of one line in an order's journey, the audit's page, the runbooks and the settings, as an operator reads them. */
import type { Mutant } from "./mutants.ts"

const travel = "test/console/Travel.test.ts"

export const journeyMutants: ReadonlyArray<Mutant> = [
  {
    name: "times-since-a-later-hop",
    breaks: "a step that two clocks disagree about is told with a time below zero",
    file: "src/application/views/JourneyLegs.ts",
    find: "at !== null && Date.parse(at) <= Date.parse(end) ?",
    replace: "at !== null ?",
    seenBy: { file: "test/application/JourneyTimes.test.ts", test: "a consumer that is done before the mark" }
  },
  {
    name: "lane-without-a-time",
    breaks: "a step of a payment is shown without its time",
    file: "src/application/views/JourneyHops.ts",
    find: "      at: occurredAt,\n",
    replace: "",
    seenBy: { file: "test/http/Journey.test.ts", test: "a paid order" }
  },
  {
    name: "gap-without-a-way-out",
    breaks: "an order that waits for a lost event can't be freed where it is looked at",
    file: "src/console/pages/orders/hopActions.js",
    find: "command === `paid-once inbox skip ${title} ${eventId}`",
    replace: "command === undefined",
    seenBy: { file: travel, test: "a consumer that misses a version" }
  },
  {
    name: "audit-of-what-stayed",
    breaks: "an entry of the audit lists what the decision has not changed",
    file: "src/console/pages/auditEntry.js",
    find: "    .filter(({ is, was }) => JSON.stringify(was) !== JSON.stringify(is))\n",
    replace: "",
    seenBy: { file: "test/console/Audit.test.ts", test: "an entry leads to its thing" }
  },
  {
    name: "runbook-without-its-code",
    breaks: "a runbook in the console lacks the commands that mend",
    file: "src/console/markdown.js",
    find: '["code", /^```\\w*\\n([^]*?)\\n?```(?:\\n|$)/]',
    replace: '["code", /^```\\w*\\n()[^]*?```(?:\\n|$)/]',
    seenBy: { file: "test/console/Runbooks.test.ts", test: "each alert's runbook_url opens there" }
  },
  {
    name: "settings-without-a-word",
    breaks: "a person who looks at a setting has to look elsewhere what it is for",
    file: "src/Config.ts",
    find: 'description: variableDescriptions[variableName] ?? ""',
    replace: 'description: ""',
    seenBy: { file: "test/http/AdminInstallation.test.ts", test: "the settings in force are shown" }
  },
  {
    name: "spans-of-nobody",
    breaks: "a trace does not tell which process did a step",
    file: "src/platform/Telemetry.ts",
    find: 'attributes: { "service.instance.id": settings.instance }',
    replace: "attributes: {}",
    seenBy: { file: "test/platform/Telemetry.test.ts", test: "a span says which process made it" }
  },
  {
    name: "skipped-counts-as-applied",
    breaks: "the sums agree although a consumer never applied what an operator skipped",
    file: "src/application/views/Sums.ts",
    find: "'applied', applied - given_up",
    replace: "'applied', applied",
    seenBy: { file: "test/application/Sums.test.ts", test: "changes, events, effects and money of the last orders" }
  },
  {
    name: "skipped-waits-for-ever",
    breaks: "the timeline waits for a version that an operator has skipped",
    file: "src/operations/AppliedEvents.ts",
    find: "AND e.version <= (a.after ->> 'version')::int4",
    replace: "AND false",
    seenBy: { file: "test/http/Timeline.test.ts", test: "says what a consumer has made of an event" }
  }
]
