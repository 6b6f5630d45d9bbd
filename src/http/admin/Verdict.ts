/**
 * Whether money is moving, in a sentence, and what waits for what: from the facts of /health/ready, and from what the database holds for all
 * processes. A person who is woken reads this first.
 */
import { Option, Schema } from "effect"
import type { StatusView } from "../../application/views/StatusView.ts"
import type { LaneView } from "../../operations/reports/LaneReport.ts"
import type { Pause } from "../../operations/pauses/Pauses.ts"
import type { Lag } from "../../operations/reports/ConsumerLag.ts"
import { lasting } from "../../platform/Lasting.ts"
import { countOf, plural } from "../../platform/Plural.ts"
import { UnreachableTopic } from "../DispatcherHealth.ts"
import type { HealthReport, PartReport } from "../Health.ts"
import type { Verdict, Wait } from "./OverviewApi.ts"

/** The figures beside health. Without them the database can't be read. */
export interface Figures {
  readonly atMillis: number
  readonly status: StatusView
  readonly lanes: ReadonlyArray<LaneView>
  readonly lags: ReadonlyArray<Lag>
  readonly lagSecondsWorst: number | null
  readonly paidLastMinute: number
}

/** Younger events and records are on their way: a dispatcher polls each second, and a consumer's slice takes some. */
const lateSeconds = 10

/** A wait, and what it stops: taking orders, publishing, or neither. */
interface Finding extends Wait {
  readonly stops: "orders" | "publishing" | "nothing"
  /** It degrades nothing: an operator means it so, or it is built to take days. */
  readonly isMeant?: true
  /** The short form of `what` in the sentence: the list beneath it has the whole. */
  readonly short?: string
}

const fieldsOf = <A, I>(schema: Schema.Codec<A, I>) => {
  const decode = Schema.decodeUnknownOption(schema)
  return (part: PartReport | undefined): A | undefined => Option.getOrUndefined(decode(part))
}
const dispatcherFields = fieldsOf(
  Schema.Struct({
    pausedTopics: Schema.Array(UnreachableTopic),
    stoppedLanes: Schema.Array(Schema.Struct({ lane: Schema.Int })),
    misorderedAggregates: Schema.Int
  })
)
const topicsFields = fieldsOf(
  Schema.Struct({
    topics: Schema.Array(
      Schema.Struct({
        topic: Schema.String,
        unavailable: Schema.optionalKey(Schema.String),
        findings: Schema.Array(Schema.Struct({ kind: Schema.String, sentence: Schema.String }))
      })
    )
  })
)
const fiberFields = fieldsOf(Schema.Struct({ state: Schema.String }))
const brokerFields = fieldsOf(Schema.Struct({ name: Schema.String }))

/** `5`, `1 and 5`, `1, 2 and 5`. */
const listed = (values: ReadonlyArray<number | string>): string =>
  values.length < 2 ? values.join("") : `${values.slice(0, -1).join(", ")} and ${values.at(-1)}`

const isDegraded = (part: PartReport | undefined) => part !== undefined && part.status !== "ready"

const ofUnreachable = ({ nextTrySeconds, partitions, sinceSeconds, topic }: typeof UnreachableTopic.Type): Finding => ({
  what:
    partitions.length === 0
      ? `the topic ${topic} can't be reached`
      : `${plural(partitions.length, "partition")} ${listed(partitions)} of ${topic} can't be reached`,
  sinceSeconds,
  frees: nextTrySeconds < 1 ? "it is being tried now" : `the next try is in ${lasting(nextTrySeconds)}`,
  runbook: "BrokerUnavailable",
  stops: "publishing"
})

/** What the parts of health say. */
const ofHealth = (parts: HealthReport["parts"]): ReadonlyArray<Finding> => {
  const findings: Array<Finding> = []
  const add = (finding: Omit<Finding, "sinceSeconds" | "stops"> & Partial<Finding>) =>
    findings.push({ sinceSeconds: null, stops: "nothing", ...finding })
  if (parts["shutdown"] !== undefined)
    add({ what: "this process is stopping", frees: "another process takes over", runbook: null, stops: "orders" })
  if (parts["start"] !== undefined)
    add({ what: "this process is starting", frees: "the start ends by itself", runbook: null, stops: "orders" })
  if (isDegraded(parts["database"])) {
    const frees = "the service reconnects as soon as the database answers"
    add({ what: "the database can't be reached", frees, runbook: "DatabaseUnreachable", stops: "orders" })
  } else if (isDegraded(parts["writes"])) {
    const frees = "a write is tried each second: look for a full disk, or a server that is read-only"
    add({ what: "the database takes no writes", frees, runbook: "DiskAlmostFull", stops: "orders" })
  }
  const dispatcher = dispatcherFields(parts["dispatcher"])
  const unreachable = dispatcher?.pausedTopics ?? []
  findings.push(...unreachable.map(ofUnreachable))
  if (isDegraded(parts["broker"]) && unreachable.length === 0) {
    const name = brokerFields(parts["broker"])?.name ?? "broker"
    const frees = "it is tried again by itself"
    add({ what: `the broker (${name}) can't be reached`, frees, runbook: "BrokerUnavailable", stops: "publishing" })
  }
  const stopped = dispatcher?.stoppedLanes.map(({ lane }) => lane) ?? []
  if (stopped.length > 0) {
    const what = `${plural(stopped.length, "lane")} ${listed(stopped)} failed`
    add({ what, frees: "it is tried again by itself; the log has the reason", runbook: "OutboxLaneFailures" })
  }
  if (dispatcher !== undefined && dispatcher.misorderedAggregates > 0) {
    const what = `events of ${countOf(dispatcher.misorderedAggregates, "aggregate")} were written out of order`
    add({ what, frees: "the log names the writer that went around the outbox", runbook: "OutboxLaneFailures" })
  }
  for (const { findings, topic, unavailable } of topicsFields(parts["topics"])?.topics ?? []) {
    const sentences = findings.filter(({ kind }) => kind !== "weak").map(({ sentence }) => sentence)
    for (const sentence of [...(unavailable === undefined ? [] : [unavailable]), ...sentences]) {
      add({ what: `topic ${topic}: ${sentence}`, frees: "an operator mends it at the broker", runbook: null })
    }
  }
  for (const [name, part] of Object.entries(parts)) {
    if (!name.startsWith("fiber:") || !isDegraded(part)) continue
    const state = fiberFields(part)?.state ?? "not running"
    // A loop that hangs has not failed, and so nobody restarts it.
    const frees = state === "stuck" ? "a restart of the process" : "it is restarted by itself; the log has the reason"
    add({ what: `${name.slice("fiber:".length)} is ${state}`, frees, runbook: "FiberRestarts" })
  }
  return findings
}

const resumeCommands: Readonly<Record<Pause["kind"], (name: string) => string>> = {
  topic: (name) => `paid-once dispatcher resume ${name}`,
  consumer: (name) => `paid-once consumers resume ${name}`,
  "task type": (name) => `paid-once tasks resume ${name}`
}

const ofRetried = (who: string, what: string, sinceSeconds: number | null, cause: string | null): Finding => ({
  what: `${who} ${what}`,
  sinceSeconds,
  frees: `the next attempt${cause === null ? "" : `, once this is mended: ${cause}`}`,
  runbook: null,
  stops: "nothing"
})

/** Retries need no decision of a person yet, and are not all well either. */
const ofRetries = ({ consumers, outbox, tasks }: StatusView): ReadonlyArray<Finding> => [
  ...consumers
    .filter(({ retrying }) => retrying > 0)
    .map(({ consumer, retrying, retryingCause, retryingSeconds }) => ({
      ...ofRetried(consumer, `retries ${countOf(retrying, "event")}`, retryingSeconds, retryingCause),
      runbook: "InboxDeadLetters"
    })),
  ...(outbox.retrying === 0
    ? []
    : [
        {
          ...ofRetried(
            "the broker",
            `refuses ${countOf(outbox.retrying, "event")}`,
            outbox.retryingSeconds,
            outbox.retryingCause
          ),
          runbook: "OutboxDeadLetters"
        }
      ]),
  ...tasks
    .filter(({ state }) => state === "retrying")
    .map(({ count, sinceSeconds, type }) => ({
      ...ofRetried(countOf(count, `${type} task`), plural(count, "is retried", "are retried"), sinceSeconds, null),
      isMeant: true as const
    }))
]

/** What the database says, for all processes. */
const ofFigures = (figures: Figures, isExplained: boolean): ReadonlyArray<Finding> => {
  const { atMillis, lags, lagSecondsWorst, lanes, status } = figures
  const { consumers, outbox, paused } = status
  const findings: Array<Finding> = paused.map(({ actor, kind, name, pausedAt, reason }) => ({
    what: `${kind} ${name} is paused by ${actor}: ${reason}`,
    short: `${kind} ${name} is paused by ${actor}`,
    sinceSeconds: Math.max(0, (atMillis - Date.parse(pausedAt)) / 1_000),
    frees: resumeCommands[kind](name),
    runbook: null,
    stops: kind === "topic" ? "publishing" : "nothing",
    isMeant: true
  }))
  for (const { consumer, gaps } of consumers) {
    if (gaps === 0) continue
    const what = `${consumer} misses an event of ${countOf(gaps, "order")}`
    findings.push({
      what,
      sinceSeconds: null,
      frees: "the missing event, or an operator skips it",
      runbook: "InboxGaps",
      stops: "nothing"
    })
  }
  findings.push(...ofRetries(status))
  const orphans = lanes.filter(({ oldestReadySeconds, owner }) => owner === null && (oldestReadySeconds ?? 0) > 1)
  const oldest = outbox.queued > 0 && outbox.oldestQueuedSeconds > lateSeconds
  if (orphans.length > 0) {
    findings.push({
      what: `no process sends the events of ${countOf(orphans.length, "lane")}`,
      sinceSeconds: Math.max(...orphans.map(({ oldestReadySeconds }) => oldestReadySeconds ?? 0)),
      frees: "a process with the role dispatcher",
      runbook: "OutboxOldestEventTooOld",
      stops: "publishing"
    })
  } else if (oldest && !isExplained && !findings.some(({ stops }) => stops === "publishing")) {
    findings.push({
      what: `${countOf(outbox.queued, "event")} ${plural(outbox.queued, "waits", "wait")} to be published`,
      sinceSeconds: outbox.oldestQueuedSeconds,
      frees: "the dispatchers work them off",
      runbook: "OutboxOldestEventTooOld",
      stops: "publishing"
    })
  }
  const slowest = lags
    .filter(({ consumer }) => !consumers.some((one) => one.consumer === consumer && one.isPaused))
    .toSorted((one, other) => (other.lag ?? 0) - (one.lag ?? 0))[0]
  if (lagSecondsWorst !== null && lagSecondsWorst > lateSeconds && slowest !== undefined && (slowest.lag ?? 0) > 0) {
    findings.push({
      what: `${slowest.consumer} has yet to read ${countOf(slowest.lag ?? 0, "record")}`,
      sinceSeconds: lagSecondsWorst,
      frees: "the consumers work them off",
      runbook: "InboxLag",
      stops: "nothing"
    })
  }
  return findings
}

const clause = ({ short, sinceSeconds, what }: Finding) =>
  sinceSeconds === null ? (short ?? what) : `${short ?? what}, for ${lasting(sinceSeconds)}`

const sentenceOf = (findings: ReadonlyArray<Finding>, figures: Figures | undefined): string => {
  const refusing = findings.find(({ stops }) => stops === "orders")
  if (refusing !== undefined) return `No order can be taken: ${clause(refusing)}.`
  const stopping = findings.find(({ stops }) => stops === "publishing")
  if (stopping !== undefined) {
    const queued = figures?.status.outbox.queued ?? 0
    const waiting =
      queued === 0 ? "no event waits yet" : `${countOf(queued, "event")} ${plural(queued, "waits", "wait")}`
    // A command is no part of a sentence: it stands in the list, where it can be copied.
    const frees = stopping.short === undefined ? `; ${stopping.frees}` : ""
    return `Orders are taken; ${waiting}: ${clause(stopping)}; nothing is lost${frees}.`
  }
  const first = findings[0]
  if (figures === undefined && first === undefined) return "The figures can't be read at the moment."
  const isQuiet = figures !== undefined && figures.paidLastMinute === 0
  if (first === undefined) {
    const decisions = figures?.status.decisions.reduce((sum, { count }) => sum + count, 0) ?? 0
    const waiting = `${countOf(decisions, "thing")} ${plural(decisions, "waits", "wait")} for a decision`
    if (isQuiet) return `${decisions === 0 ? "Nothing waits" : waiting}; nobody has paid in the last minute.`
    return decisions === 0 ? "Money is moving." : `Money is moving; ${waiting}.`
  }
  return `${isQuiet ? "Orders are taken" : "Money is moving"}, but ${clause(first)}.`
}

/** The verdict. A wait that only the database knows of degrades it: it may be in another process. */
export const verdictOf = (health: HealthReport, figures: Figures | undefined): Verdict => {
  const own = ofHealth(health.parts)
  const isExplained = own.some(({ stops }) => stops === "publishing")
  const shared = figures === undefined ? [] : ofFigures(figures, isExplained)
  const isDegrading = shared.some(({ isMeant }) => isMeant !== true)
  const status = health.status === "ready" && isDegrading ? "degraded" : health.status
  const findings = [...own, ...shared]
  return {
    status,
    sentence: sentenceOf(findings, figures),
    waits: findings.map(({ frees, runbook, sinceSeconds, what }) => ({ what, sinceSeconds, frees, runbook }))
  }
}
