/** The verdict, as a table: from the parts of health and the figures to the sentence. */
import { assert, it } from "@effect/vitest"
import type { Decision } from "../../src/application/views/StatusView.ts"
import type { HealthReport, PartReport } from "../../src/http/Health.ts"
import { type Figures, verdictOf } from "../../src/http/admin/Verdict.ts"
import { readdirSync } from "node:fs"
import * as Path from "node:path"
import { root } from "../support/Postgres.ts"

const runbooks = readdirSync(Path.join(root, "docs/runbooks"))

const noRetries = { retrying: 0, retryingSeconds: null, retryingCause: null }

const calm: Figures = {
  atMillis: Date.parse("2026-01-01T12:00:00Z"),
  status: {
    outbox: { queued: 0, ...noRetries, parked: 0, dead: 0, discarded: 0, oldestQueuedSeconds: 0, aggregatesWaiting: 0 },
    consumers: [
      {
        consumer: "billing",
        isPaused: false,
        ...noRetries,
        parked: 0,
        dead: 0,
        gaps: 0,
        discarded: 0,
        oldestHeldSeconds: null
      }
    ],
    tasks: [],
    payments: { manual: 0, charging: 0, refunding: 0, manualSeconds: null, areMore: false },
    mail: { waiting: 0, dead: 0, uncertain: 0, deadSeconds: null },
    paused: [],
    decisions: []
  },
  lanes: [],
  lags: [],
  lagSecondsWorst: 0,
  paidLastMinute: 7
}

const health = (parts: Readonly<Record<string, PartReport>>): HealthReport => {
  const statuses = new Set(Object.values(parts).map(({ status }) => status))
  const status = statuses.has("unready") ? "unready" : statuses.has("degraded") ? "degraded" : "ready"
  return { status, parts }
}

const unreachable = (partitions: ReadonlyArray<number>, nextTrySeconds: number): PartReport => ({
  status: "degraded",
  pausedTopics: [{ topic: "orders", attempt: 3, partitions: [...partitions], sinceSeconds: 42.4, nextTrySeconds }],
  stoppedLanes: [],
  misorderedAggregates: 0
})

const decision = (count: number): Decision => ({
  kind: "task",
  count,
  sinceSeconds: 60,
  what: "dead tasks",
  page: "tasks?state=dead",
  command: "paid-once tasks list --by-cause"
})

const cases: ReadonlyArray<
  readonly [string, HealthReport["parts"], Partial<Figures> | undefined, HealthReport["status"], string]
> = [
  ["all is well", {}, {}, "ready", "Money is moving."],
  ["a quiet hour", {}, { paidLastMinute: 0 }, "ready", "Nothing waits; nobody has paid in the last minute."],
  [
    "one partition",
    { broker: { status: "degraded", name: "kafka" }, dispatcher: unreachable([5], 3) },
    { status: { ...calm.status, outbox: { ...calm.status.outbox, queued: 1_118 } } },
    "degraded",
    "Orders are taken; 1,118 events wait: partition 5 of orders can't be reached, for 42 s; nothing is lost; the next try is in 3 s."
  ],
  [
    "several partitions, tried now",
    { dispatcher: unreachable([1, 2, 5], 0.2) },
    {},
    "degraded",
    "Orders are taken; no event waits yet: partitions 1, 2 and 5 of orders can't be reached, for 42 s; nothing is lost; it is being tried now."
  ],
  [
    "the broker, seen by a process without a dispatcher",
    { broker: { status: "degraded", name: "kafka" } },
    { status: { ...calm.status, outbox: { ...calm.status.outbox, queued: 1 } } },
    "degraded",
    "Orders are taken; 1 event waits: the broker (kafka) can't be reached; nothing is lost; it is tried again by itself."
  ],
  [
    "the database",
    { database: { status: "unready" } },
    undefined,
    "unready",
    "No order can be taken: the database can't be reached."
  ],
  [
    "a full disk",
    { writes: { status: "unready" } },
    {},
    "unready",
    "No order can be taken: the database takes no writes."
  ],
  ["the start", { start: { status: "unready" } }, {}, "unready", "No order can be taken: this process is starting."],
  [
    "a fiber",
    { "fiber:payment metrics": { status: "degraded", state: "restarting" } },
    {},
    "degraded",
    "Money is moving, but payment metrics is restarting."
  ],
  [
    "an operator's pause degrades nothing",
    {},
    {
      status: {
        ...calm.status,
        paused: [
          { kind: "consumer", name: "billing", pausedAt: "2026-01-01T11:46:00Z", actor: "ada", reason: "a look" }
        ]
      }
    },
    "ready",
    "Money is moving, but consumer billing is paused by ada, for 14 min."
  ],
  [
    "a topic that an operator has paused",
    {},
    {
      status: {
        ...calm.status,
        paused: [
          { kind: "topic", name: "orders", pausedAt: "2026-01-01T11:58:14Z", actor: "ada", reason: "drill; twice: so" }
        ]
      }
    },
    "ready",
    "Orders are taken; no event waits yet: topic orders is paused by ada, for 106 s; nothing is lost."
  ],
  [
    "a lag that only the broker tells",
    {},
    {
      lags: [{ consumer: "billing", topic: "orders", lag: 4_120, unknown: null, partitions: [] }],
      lagSecondsWorst: 300
    },
    "degraded",
    "Money is moving, but billing has yet to read 4,120 records, for 5 min."
  ],
  [
    "an event that a consumer retries",
    {},
    {
      status: {
        ...calm.status,
        consumers: calm.status.consumers.map((one) => ({ ...one, retrying: 1, retryingSeconds: 40.2, parked: 2 }))
      }
    },
    "degraded",
    "Money is moving, but billing retries 1 event, for 40 s."
  ],
  [
    "events that the broker refuses",
    {},
    { status: { ...calm.status, outbox: { ...calm.status.outbox, retrying: 2, retryingSeconds: 300, parked: 4 } } },
    "degraded",
    "Money is moving, but the broker refuses 2 events, for 5 min."
  ],
  [
    "a task that is retried, as it may be for days",
    {},
    {
      status: { ...calm.status, tasks: [{ type: "email", state: "retrying", count: 1, sinceSeconds: 7_300 }] },
      paidLastMinute: 0
    },
    "ready",
    "Orders are taken, but 1 email task is retried, for 2 h."
  ],
  [
    "what a person has to decide",
    {},
    { status: { ...calm.status, decisions: [decision(2), decision(1)] } },
    "ready",
    "Money is moving; 3 things wait for a decision."
  ],
  [
    "a decision in a quiet hour",
    {},
    { status: { ...calm.status, decisions: [decision(1)] }, paidLastMinute: 0 },
    "ready",
    "1 thing waits for a decision; nobody has paid in the last minute."
  ],
  ["no reason at all", {}, undefined, "ready", "The figures can't be read at the moment."]
]

it("a pause's wait has the reason, and the command that ends it in a place of its own", () => {
  const pause = {
    kind: "topic",
    name: "orders",
    pausedAt: "2026-01-01T11:58:14Z",
    actor: "ada",
    reason: "drill"
  } as const
  const { waits } = verdictOf(health({}), { ...calm, status: { ...calm.status, paused: [pause] } })
  assert.deepInclude(waits[0], {
    what: "topic orders is paused by ada: drill",
    frees: "paid-once dispatcher resume orders"
  })
})

it("a wait says why a consumer retries its event", () => {
  const consumers = calm.status.consumers.map((one) => ({ ...one, retrying: 1, retryingCause: "no such account" }))
  const { waits } = verdictOf(health({}), { ...calm, status: { ...calm.status, consumers } })
  assert.deepInclude(waits[0], { frees: "the next attempt, once this is mended: no such account" })
})

for (const [name, parts, figures, status, sentence] of cases) {
  it(`the verdict of ${name}`, () => {
    const verdict = verdictOf(health(parts), figures === undefined ? undefined : { ...calm, ...figures })
    assert.deepStrictEqual([verdict.status, verdict.sentence], [status, sentence])
    for (const { runbook } of verdict.waits) if (runbook !== null) assert.include(runbooks, `${runbook}.md`)
  })
}
