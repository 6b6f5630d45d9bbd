/** `paid-once doctor`: looks at a live system, and tells what is wrong with it and what mends that. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Effect, Redacted, Result } from "effect"
import { Command, Flag } from "effect/cli"
import { HttpClient, HttpClientRequest } from "effect/http"
import { type AppConfig, defaultPort } from "../Config.ts"
import type { CheckReport, DoctorReport } from "../operations/doctor/Check.ts"
import { ScrapeFailed } from "../operations/doctor/MetricChecks.ts"
import * as BoundedBody from "../platform/BoundedBody.ts"
import { headersOf, type HttpTarget, parse } from "../platform/HttpTarget.ts"
import { innermost } from "../platform/Innermost.ts"
import { countOf } from "../platform/Plural.ts"
import { json, onFound, print, table } from "./Operator.ts"
import { ExitStatus } from "./Process.ts"

const url = Flag.String("url").pipe(
  Flag.withDescription(
    "a process of the running service, for its metrics; may be repeated (default: HOST and PORT, as the service has them)"
  ),
  Flag.filterMap(
    (text) => Result.getSuccess(parse(text)),
    () => "Expected an address like http://127.0.0.1:3000"
  ),
  Flag.atLeast(0)
)

/** A scrape is some hundred kilobytes. */
const maxScrapeBytes = 16_777_216

const scrapeMillis = 5_000

/** The process that this shell's variables name. Those that listen everywhere are asked on this machine. */
const ownTarget = ({ host, port }: AppConfig): HttpTarget | undefined =>
  port === 0
    ? undefined
    : {
        url: `http://${host === "0.0.0.0" || host === "::" ? "127.0.0.1" : host.includes(":") ? `[${host}]` : host}:${port ?? defaultPort}`,
        authorization: undefined
      }

const scrapeOf = ({ adminToken }: AppConfig, target: HttpTarget, wasNamed: boolean) =>
  Effect.gen(function* () {
    const client = yield* HttpClient.HttpClient
    const response = yield* client.execute(
      HttpClientRequest.get(`${target.url.replace(/\/$/, "")}/metrics`).pipe(
        HttpClientRequest.setHeaders({
          ...(adminToken === undefined ? {} : { authorization: `Bearer ${Redacted.value(adminToken)}` }),
          ...headersOf(target),
          "accept-encoding": "identity"
        })
      )
    )
    const text = yield* BoundedBody.textOf(response, maxScrapeBytes)
    if (response.status !== 200) {
      return yield* new ScrapeFailed({
        reason: `${target.url}/metrics answered ${response.status}${response.status === 401 ? ": set ADMIN_TOKEN to an operator's token" : ""}`,
        wasNamed
      })
    }
    return text
  }).pipe(
    Effect.timeout(scrapeMillis),
    Effect.mapError((error) =>
      error instanceof ScrapeFailed
        ? error
        : new ScrapeFailed({
            reason: `no process of the service answers at ${target.url}: ${innermost(error)}${wasNamed ? "" : "; name one with --url"}`,
            wasNamed
          })
    ),
    Effect.provide(NodeHttpClient.layerUndici)
  )

/** The metrics of all these processes together. */
const scrape = (config: AppConfig, urls: ReadonlyArray<HttpTarget>) => {
  const own = ownTarget(config)
  const targets = urls.length > 0 ? urls : own === undefined ? [] : [own]
  return targets.length === 0
    ? Effect.fail(
        new ScrapeFailed({
          reason: "the address of a running process is not known: name one with --url",
          wasNamed: false
        })
      )
    : Effect.map(
        Effect.forEach(targets, (target) => scrapeOf(config, target, urls.length > 0)),
        (texts) => texts.join("\n")
      )
}

const findingsOf = ({ findings, name }: CheckReport): ReadonlyArray<string> =>
  findings.flatMap(({ command, fix, problem }) => [
    "",
    `${name}: ${problem}.`,
    `  ${fix}.`,
    ...(command === null ? [] : [`  $ ${command}`])
  ])

const lines = ({ checks, findings, notChecked }: DoctorReport): ReadonlyArray<string> => [
  ...table([
    ["OUTCOME", "PART", "CHECK", "WHAT IT SAW"],
    ...checks.map((check) => [
      check.outcome,
      check.group,
      check.name,
      check.outcome === "finding" ? countOf(check.findings.length, "finding") : check.told
    ])
  ]),
  ...checks.flatMap(findingsOf),
  "",
  `${countOf(checks.length, "check")}, ${countOf(findings, "finding")}${notChecked === 0 ? "" : `, ${notChecked} not checked`}.`
]

/** The command. */
export const doctor = Command.make(
  "doctor",
  { json, url },
  Effect.fnUntraced(function* ({ json, url }) {
    const report = yield* onFound((config, examine) => examine(config, scrape(config, url)))
    yield* print(json, report, () => lines(report))
    if (report.findings > 0) return yield* Effect.fail(new ExitStatus(1))
  })
)
