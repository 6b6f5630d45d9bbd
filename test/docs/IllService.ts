/** A real service for a test to make ill, requests to it, and the alerts of a replay. */
import { Clock, Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { eventually } from "../support/Counters.ts"
import * as Promtool from "../support/Promtool.ts"
import { scrape, type Series, seriesOf } from "../support/Scrape.ts"
import * as TcpProxy from "../support/TcpProxy.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { betweenMillis, minutesHeld, replayed } from "./AlertRules.ts"

/** Starts the service with these variables. */
export const start = Effect.fnUntraced(function* (env: Readonly<Record<string, string>> = {}, roles?: string) {
  const { url } = yield* TestDatabase
  return yield* ServiceProcess.start({
    ...(roles === undefined ? {} : { roles }),
    env: {
      DATABASE_URL: Redacted.value(url),
      DATA_DIRECTORY: yield* TestDatabase.dataDirectory,
      PORT: "0",
      LOG_LEVEL: "Error",
      ...plantedEnv(),
      ...env
    }
  })
})

/** Takes this night's reconciliation for done, whatever the time is: it would tell of what the test breaks, too. */
export const beforeNight = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql`
    INSERT INTO reconciliation_runs (run_id, started_at, finished_at, actor, differences, report)
    VALUES (${crypto.randomUUID()}::uuid, clock_now() + interval '1 hour', clock_now(), 'a test', 0, '{}')`
)

type Service = ServiceProcess.ServiceProcess

/** Sends a request with an idempotency key of its own. */
export const post = (service: Service, path: string, body: unknown) =>
  Effect.promise(async () => {
    const response = await fetch(`${service.url}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", "idempotency-key": crypto.randomUUID() },
      body: JSON.stringify(body)
    })
    return (await response.json()) as { readonly id: string }
  })

const line = { sku: "book", quantity: 1, unitAmountMinor: 100 }

/** Places an order. */
export const place = (service: Service) =>
  post(service, "/orders", { customerId: "ada", currency: "EUR", lines: [line] })

/** Places an order and pays it. */
export const pay = (service: Service) =>
  Effect.flatMap(place(service), ({ id }) =>
    Effect.as(post(service, `/orders/${id}/pay`, { paymentMethod: "pm_ok" }), id)
  )

/** As many requests at once as a process works on by default, and more. */
const atOnce = 16

/** Does it `count` times. */
export const times = (count: number, request: Effect.Effect<unknown>) =>
  Effect.forEach(Array.from({ length: count }), () => request, { concurrency: atOnce, discard: true })

/** An address where nobody listens. */
export const nobody = Effect.map(TcpProxy.freePorts(1), ([port]) => `127.0.0.1:${port}`)

/** Waits until a metric with these labels is above the limit. */
export const above = (service: Service, limit: number, name: string, labels: Series["labels"] = {}) =>
  eventually(
    `${name} above ${limit}`,
    Effect.map(scrape(service), (text) =>
      seriesOf(text).some(
        (one) =>
          one.name === name &&
          one.value > limit &&
          Object.entries(labels).every(([key, value]) => one.labels[key] === value)
      )
    )
  )

const fired = new Set<string>()

/** The alerts that have fired in a replay so far. */
export const firedSoFar: ReadonlySet<string> = fired

/** These alerts, and no others, fire if the figures of `series` go on. */
export const firesIn = Effect.fnUntraced(function* (
  command: string,
  series: Readonly<Record<string, ReadonlyArray<number>>>,
  alerts: ReadonlyArray<string>
) {
  yield* Promtool.testRules(command, [
    { name: "an ill service", series, firing: { [minutesHeld - 1]: alerts.toSorted() } }
  ])
  for (const alert of alerts) fired.add(alert)
})

/**
 * These alerts, and no others, fire in the end if it goes on as it went between two scrapes. `meanwhile` happens between them. Gauges stay,
 * unless they are named as `growing`.
 */
export const fires = Effect.fnUntraced(function* (
  command: string,
  service: Service,
  alerts: ReadonlyArray<string>,
  options: { readonly meanwhile?: Effect.Effect<unknown>; readonly growing?: ReadonlyArray<string> } = {}
) {
  const first = seriesOf(yield* scrape(service))
  const began = yield* Clock.currentTimeMillis
  yield* options.meanwhile ?? Effect.void
  yield* Effect.sleep(betweenMillis)
  const second = seriesOf(yield* scrape(service))
  const elapsedMillis = (yield* Clock.currentTimeMillis) - began
  yield* firesIn(command, replayed({ first, second, elapsedMillis, growing: options.growing ?? [] }), alerts)
})
