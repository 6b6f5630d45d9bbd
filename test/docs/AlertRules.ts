/** docs/alerts: its rules, and the queries of rules and dashboard. */
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import { type Series, written } from "../support/Scrape.ts"

export const root = Path.resolve(import.meta.dirname, "../..")
const textOf = (file: string) => readFileSync(Path.join(root, file), "utf8")

export interface Rule {
  readonly alert: string
  readonly expr: string
  /** How long it has to hold. */
  readonly forMinutes: number
  readonly severity: string
  readonly annotations: Readonly<Record<string, string>>
}

/** The rules, in their order. The file is of one form throughout, which promtool reads as YAML. */
export const rules: ReadonlyArray<Rule> = textOf("docs/alerts/rules.yml")
  .split(/^ {6}- alert: /m)
  .slice(1)
  .map((block) => {
    const field = (name: string) => new RegExp(`^ +${name}: (.*)$`, "m").exec(block)?.[1]
    const expr = /^ {8}expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)/m.exec(block)
    const { severity = "" } = /severity: (?<severity>\w+)/.exec(field("labels") ?? "")?.groups ?? {}
    return {
      alert: block.split("\n", 1)[0]!,
      expr: (expr?.[1] ?? expr?.[2] ?? "").replaceAll(/\s+/g, " ").trim(),
      forMinutes: Number(/^(\d+)m$/.exec(field("for") ?? "0m")?.[1]),
      severity,
      annotations: Object.fromEntries(
        ["summary", "description", "runbook_url"].map((name) => [name, field(name) ?? ""])
      )
    }
  })

interface Panel {
  readonly title: string
  readonly targets?: ReadonlyArray<{ readonly expr: string }>
}

/** The dashboard's panels with queries. */
export const panels = (): ReadonlyArray<Required<Panel>> =>
  (JSON.parse(textOf("docs/alerts/dashboard.json")) as { readonly panels: ReadonlyArray<Panel> }).panels.flatMap(
    ({ targets, title }) => (targets === undefined ? [] : [{ title, targets }])
  )

/** Metrics that rules name ahead of the code that makes them. The reference names them once it is there, and then they have to exist. */
export const awaited = ["payments_contradicted_total"].filter(
  (name) => !textOf("docs/reference.md").includes(`\`${name}`)
)

/** Prometheus' own. */
const fromPrometheus = new Set(["job", "instance", "le"])
const keywords = new Set(["and", "or", "unless"])

/** What the query asks for and the scrape does not have: a metric, a label, or a label's value. */
export const mistakesIn = (query: string, found: ReadonlyArray<Series>): ReadonlyArray<string> => {
  const grouped: Array<string> = []
  const names: Array<string> = []
  const mistakes: Array<string> = []
  const seriesOf = (name: string) => found.filter((series) => series.name === name)
  const bare = query
    .replaceAll(/\b(?:by|on|without) \(([^)]*)\)/g, (_, labels: string) => {
      grouped.push(...labels.split(",").map((label) => label.trim()))
      return ""
    })
    .replaceAll(/(\w+)\{([^}]*)\}/g, (_, name: string, matchers: string) => {
      for (const [, label = "", operator, value = ""] of matchers.matchAll(/(\w+)(=~|=|!=|!~)"([^"]*)"/g)) {
        const series = seriesOf(name).filter(({ labels }) => label in labels)
        const matches = new RegExp(`^(?:${value})$`)
        // The answers to requests that nobody has made yet are in no scrape.
        const isOpen = name.startsWith("http_request") || operator!.startsWith("!")
        if (fromPrometheus.has(label)) continue
        if (series.length === 0) mistakes.push(`${name} has no label ${label}`)
        else if (!isOpen && !series.some(({ labels }) => matches.test(labels[label]!)))
          mistakes.push(`no ${name} has the ${label} ${value}`)
      }
      return name
    })
    .replaceAll(/\[[^\]]*\]|\b\d[\w.]*/g, "")
  for (const [, name = ""] of bare.matchAll(/\b([a-z_]\w*)\b(?!\s*\()/g)) if (!keywords.has(name)) names.push(name)
  const known = names.filter((name) => name !== "up" && !awaited.includes(name))
  for (const name of known) if (seriesOf(name).length === 0) mistakes.push(`there is no ${name}`)
  for (const label of grouped) {
    if (fromPrometheus.has(label) || known.some((name) => seriesOf(name).some(({ labels }) => label in labels)))
      continue
    mistakes.push(`none of ${names.join(", ")} has the label ${label}`)
  }
  return mistakes
}

/** How long a replay lasts: longer than any rule looks back and waits, but for the hour of PaymentsContradicted. */
export const minutesHeld = 40
/** Longer than any sampler's interval but the machine's: the second scrape has new samples. */
export const betweenMillis = 6_000
const growsOn = /_(total|bucket|count|sum|age_seconds|lag_seconds)$/
const queried = new Set(rules.flatMap(({ expr }) => expr.match(/\b[a-z_]+\b/g) ?? []))

/** Two scrapes of a process, the time between them, and the gauges that go on as they went: others stay. */
interface Scrapes {
  readonly first: ReadonlyArray<Series>
  readonly second: ReadonlyArray<Series>
  readonly elapsedMillis: number
  readonly growing: ReadonlyArray<string>
}

/** A process that does not answer, as Prometheus sees it. */
export const gone = { [`up{instance="a",job="paid-once"}`]: Array.from({ length: minutesHeld }, () => 0) }

/** What promtool is to be told: each series from its last two figures on. */
export const replayed = ({ elapsedMillis, first, growing, second }: Scrapes) => {
  const before = new Map(first.map((series) => [written(series), series.value]))
  const rows = [...second, { name: "up", labels: {}, value: 1 }].filter(({ name }) => queried.has(name))
  return Object.fromEntries(
    rows.map((series) => {
      // promtool's clock begins at 0.
      const value = series.value - (series.name.endsWith("_timestamp_seconds") ? Date.now() / 1_000 : 0)
      const grows = growsOn.test(series.name) || growing.includes(series.name)
      const growth = grows ? series.value - (before.get(written(series)) ?? 0) : 0
      const perMinute = Math.max(0, growth) * (60_000 / elapsedMillis)
      const labelled = { ...series, labels: { ...series.labels, job: "paid-once", instance: "a" } }
      return [written(labelled), Array.from({ length: minutesHeld }, (_, minute) => value + minute * perMinute)]
    })
  )
}
