/** The doctor's checks of what watches the service: the metrics of a running process, and the alert rules over them. */
import { Effect, Schema } from "effect"
import { readFile } from "node:fs/promises"
import { countOf } from "../../platform/Plural.ts"
import { type Check, notChecked, told } from "./Check.ts"

/** The running service's metrics as text, or a sentence about why they can't be had. */
export type Scrape = Effect.Effect<string, ScrapeFailed>

export class ScrapeFailed extends Schema.TaggedError<ScrapeFailed>()("ScrapeFailed", {
  reason: Schema.String,
  /** Somebody has named this process: then it has to answer. Otherwise there may be none. */
  wasNamed: Schema.Boolean
}) {
  override get message() {
    return this.reason
  }
}

const group = "metrics"

/** What the checklist asks for, by series: one of each has to be there. */
const asked: ReadonlyArray<{ readonly what: string; readonly names: ReadonlyArray<string> }> = [
  { what: "depth", names: ["outbox_events_pending", "outbox_oldest_pending_age_seconds", "outbox_tasks_pending"] },
  { what: "throughput", names: ["outbox_events_published_total", "outbox_task_processed_total", "inbox_events_total"] },
  { what: "errors", names: ["outbox_events_failed_total", "outbox_dead_letters", "outbox_tasks_dead"] },
  {
    what: "latency",
    names: [
      "outbox_publish_latency_seconds_bucket",
      "outbox_batch_duration_seconds_bucket",
      "outbox_task_duration_seconds_bucket"
    ]
  }
]

/** The names in a scrape. */
const namesIn = (text: string): ReadonlySet<string> =>
  new Set([...text.matchAll(/^(?:# TYPE )?([a-zA-Z_:]\w*)/gm)].flatMap(([, name = ""]) => [name, `${name}_bucket`]))

const elsewhere = {
  fix: "Ask a process that has the part, with --url; a process with the roles that are missing tells its own metrics, where it has a PORT",
  command: "npm run paid-once -- doctor --url http://HOST:PORT"
}

const series = (scrape: Scrape): Check => ({
  group,
  name: "metrics",
  run: Effect.match(scrape, {
    onFailure: ({ reason, wasNamed }) =>
      wasNamed
        ? told("", [
            { problem: reason, fix: "Start it, or name the address where it listens (PORT, HOST)", command: null }
          ])
        : notChecked(reason),
    onSuccess: (text) => {
      const names = namesIn(text)
      const lacking = asked
        .map(({ names: wanted, what }) => ({ what, missing: wanted.filter((name) => !names.has(name)) }))
        .filter(({ missing }) => missing.length > 0)
      // One cause, a process without the part, is one finding.
      return told(
        "depth, throughput, errors and latency are told",
        lacking.length === 0
          ? []
          : [
              {
                ...elsewhere,
                problem: `that process does not tell ${lacking.map(({ missing, what }) => `${what} (${missing.join(", ")})`).join(", ")}`
              }
            ]
      )
    }
  })
})

/** What PromQL and Prometheus have names for. And a series that a process without certificates rightly does not have. */
const notSeries = new Set(["and", "or", "unless", "up", "tls_certificate_expiry_timestamp_seconds"])

/** The metrics that a rule's expression names: not its functions, labels and durations. */
const metricsIn = (expression: string): ReadonlyArray<string> =>
  [
    ...new Set(
      [
        ...expression
          .replaceAll(/\b(?:by|on|without|ignoring|group_left|group_right) *\([^)]*\)/g, " ")
          .replaceAll(/\{[^}]*\}|\[[^\]]*\]|"[^"]*"|\b\d[\w.]*/g, " ")
          .matchAll(/\b([a-zA-Z_:]\w*)\b(?!\s*\()/g)
      ].map(([, name = ""]) => name)
    )
  ].filter((name) => !notSeries.has(name))

/** The alerts of a rules file in the form of docs/alerts/rules.yml, with the metrics that each names. */
const alertsIn = (text: string) =>
  text
    .split(/^ *- alert: /m)
    .slice(1)
    .map((block) => ({
      name: block.split("\n", 1)[0]!.trim(),
      metrics: metricsIn(
        (/^ *expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)/m.exec(block) ?? []).slice(1).filter(Boolean).join(" ")
      )
    }))

const rules = (scrape: Scrape, file: string): Check => ({
  group,
  name: "alerts",
  run: Effect.gen(function* () {
    const text = yield* Effect.promise(() => readFile(file, "utf8"))
    const alerts = alertsIn(text)
    const found = yield* Effect.result(scrape)
    if (found._tag === "Failure") return notChecked(found.failure.reason)
    const names = namesIn(found.success)
    const mute = alerts
      .map(({ metrics, name }) => ({ name, missing: metrics.filter((metric) => !names.has(metric)) }))
      .filter(({ missing }) => missing.length > 0)
    return told(
      `${alerts.length} rules name series that are there; whether your Prometheus has loaded them is its own to tell`,
      [
        ...(alerts.length === 0
          ? [
              {
                problem: `there is no rule in ${file}: nobody is called when something stops`,
                fix: "Give Prometheus the rules of docs/alerts/rules.yml",
                command: "promtool check rules docs/alerts/rules.yml"
              }
            ]
          : []),
        ...(mute.length === 0
          ? []
          : [
              {
                ...elsewhere,
                problem: `${countOf(mute.length, "alert")} can never fire by that process: ${mute.map(({ missing, name }) => `${name} (it has no ${missing.join(", ")})`).join(", ")}`
              }
            ])
      ]
    )
  })
})

/** `rulesFile` is the path of the alert rules. */
export const checks = (scrape: Scrape, rulesFile: string): ReadonlyArray<Check> => [
  series(scrape),
  rules(scrape, rulesFile)
]
