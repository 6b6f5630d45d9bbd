/**
 * Prometheus' own checker of rules, `promtool`: the one on PATH, else from Debian's package `prometheus`, which is downloaded once into
 * `node_modules/.cache/paid-once` and not installed.
 */
import { Effect } from "effect"
import * as fs from "node:fs"
import * as path from "node:path"
import * as LocalKafka from "./LocalKafka.ts"

export const rulesFile = path.resolve(import.meta.dirname, "../../docs/alerts/rules.yml")

const unpacked = path.join(LocalKafka.cacheDirectory, "prometheus")
const inPackage = "usr/bin/promtool"

/** 19 MB; the lists of packages first, on a machine that has none yet. */
const downloadTimeout = "10 minutes"

const download = Effect.gen(function* () {
  yield* Effect.logInfo(`downloading Debian's package prometheus (19 MB, once) into ${unpacked}`)
  fs.mkdirSync(LocalKafka.cacheDirectory, { recursive: true })
  const partial = yield* LocalKafka.temporaryDirectory(`${unpacked}.`)
  const get = LocalKafka.execute("apt-get", ["download", "-q", "prometheus"], { cwd: partial })
  yield* get.pipe(
    Effect.catch(() => Effect.andThen(LocalKafka.execute("apt-get", ["update", "-q"]), get)),
    Effect.timeoutOrElse({
      duration: downloadTimeout,
      orElse: () => Effect.fail(new LocalKafka.LocalKafkaError({ problem: `apt took over ${downloadTimeout}` }))
    })
  )
  const [archive = ""] = fs.readdirSync(partial)
  yield* LocalKafka.execute("dpkg-deb", ["-x", path.join(partial, archive), partial])
  // In one step, so that an interrupted download never looks complete. Of two downloads the first one wins.
  if (!fs.existsSync(unpacked)) fs.renameSync(partial, unpacked)
  return path.join(unpacked, inPackage)
}).pipe(Effect.scoped)

/** Finds promtool, or says what to install. */
export const find: Effect.Effect<{ readonly command: string } | { readonly missing: string }> = LocalKafka.execute(
  "promtool",
  ["--version"]
).pipe(
  Effect.as("promtool"),
  Effect.catch(() =>
    fs.existsSync(path.join(unpacked, inPackage)) ? Effect.succeed(path.join(unpacked, inPackage)) : download
  ),
  Effect.match({
    onSuccess: (command) => ({ command }),
    onFailure: ({ message }) => ({
      missing: `no promtool here: install Prometheus (on Debian: prometheus). ${message}`
    })
  })
)

/** Series by minute, and the names of the alerts that fire at some of these minutes. */
export interface RuleTest {
  readonly name: string
  readonly series: Readonly<Record<string, ReadonlyArray<number>>>
  readonly firing: Readonly<Record<number, ReadonlyArray<string>>>
}

/** Fails with promtool's own words where other alerts fire, or none. */
export const testRules = (command: string, tests: ReadonlyArray<RuleTest>) =>
  Effect.gen(function* () {
    const directory = yield* LocalKafka.temporaryDirectory("/tmp/paid-once-rules-")
    const file = path.join(directory, "tests.yml")
    // JSON is YAML.
    const text = JSON.stringify({
      rule_files: [rulesFile],
      evaluation_interval: "1m",
      tests: tests.map(({ firing, name, series }) => ({
        name,
        interval: "1m",
        input_series: Object.entries(series).map(([key, values]) => ({ series: key, values: values.join(" ") })),
        promql_expr_test: Object.entries(firing).map(([minute, alerts]) => ({
          expr: `max by (alertname) (ALERTS{alertstate="firing"})`,
          eval_time: `${minute}m`,
          exp_samples: alerts.map((alertname) => ({ labels: `{alertname="${alertname}"}`, value: 1 }))
        }))
      }))
    })
    fs.writeFileSync(file, text)
    yield* LocalKafka.execute(command, ["test", "rules", file])
  }).pipe(Effect.scoped)
