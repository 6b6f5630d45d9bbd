/**
 * The ground that a drill stands on: a running service that may be broken, its database as the owner, and the orders of this drill. What is broken
 * here is mended when the scope closes. Leftovers of a killed drill are mended before the service is asked anything (Turn.ts).
 */
import { Effect, Exit, Random, Redacted, Ref, Schema, type Scope } from "effect"
import { HttpClient, HttpClientRequest } from "effect/http"
import { SqlClient, type SqlError } from "effect/sql"
import { TimelineView } from "../../application/Timeline.ts"
import type { AppConfig } from "../../Config.ts"
import { isLoopback } from "../../http/access/AllowedHosts.ts"
import { ArmedFaults } from "../../operations/faults/ArmedFaults.ts"
import type { Fault } from "../../platform/FaultInjection.ts"
import type { Operator } from "../../platform/OperatorAudit.ts"
import { countOf } from "../../platform/Plural.ts"
import * as Rows from "../../platform/Rows.ts"
import * as Breakages from "./Breakages.ts"
import * as Leftovers from "./Leftovers.ts"
import * as Stranded from "./Stranded.ts"
import { DrillFailed, type Teller } from "./Teller.ts"
import * as Turn from "./Turn.ts"

const start = "start it with: FAULTS=on npm start"

/** A payment that waits for a silent gateway takes some five seconds; an answer that takes longer hangs. */
const answerMillis = 60_000

const Order = Schema.Struct({ id: Schema.String, status: Schema.String, version: Schema.Int })
const decodeOrder = Schema.decodeUnknownEffect(Order)
const decodeHealth = Schema.decodeUnknownEffect(Schema.Struct({ status: Schema.String }))
const decodeTimeline = Schema.decodeUnknownEffect(TimelineView)
const counted = Rows.one(Schema.Struct({ count: Schema.Int }))
const pauses = Rows.all(Schema.Struct({ kind: Schema.String, name: Schema.String }))

/** Why a drill may not break what this configuration names: it breaks the sandbox gateway, the embedded broker, and a database on this machine. */
const reasonAgainst = (config: AppConfig): string | undefined => {
  if (config.gatewayUrl !== undefined)
    return "drills break the sandbox gateway alone, and GATEWAY_URL names another one: unset it, here and for the service"
  if (config.kafkaBrokers !== undefined)
    return "drills break the embedded broker alone, and KAFKA_BROKERS names another one: unset it, here and for the service"
  if (config.apiKeys !== undefined)
    return "a service with API_KEYS is no service to break: unset them, here and for the service"
  if (config.databaseUrl === undefined) return undefined
  const { hostname, searchParams } = new URL(Redacted.value(config.databaseUrl))
  const host = decodeURIComponent(searchParams.get("host") ?? hostname).replace(/^\[|\]$/g, "")
  return host === "" || host.startsWith("/") || isLoopback(host)
    ? undefined
    : `drills break a database on this machine alone, and DATABASE_URL is at ${host}`
}

/** Fails where a drill may break nothing of this configuration. To be asked before anything is connected to. */
export const allowed = (config: AppConfig): Effect.Effect<void, Turn.DrillRefused> => {
  const reason = reasonAgainst(config)
  return reason === undefined ? Effect.void : Effect.fail(new Turn.DrillRefused({ reason }))
}

/** Makes the ground, or refuses with what to do. `url` is the service's. */
export const make = Effect.fnUntraced(function* (options: {
  readonly config: AppConfig
  readonly url: string
  readonly drill: string
  readonly actor: string
  readonly teller: Teller
}) {
  const { config, drill, teller, url } = options
  const refuse = (reason: string) => new Turn.DrillRefused({ reason })
  const operator: Operator = { actor: options.actor, reason: Leftovers.reasonOf(drill) }
  const client = yield* HttpClient.HttpClient
  const faults = yield* ArmedFaults
  const { run } = yield* Turn.take({ config, operator, teller })
  const tidyUp = Effect.gen(function* () {
    const told = (what: string) => teller.tell("sees", `Tidying up, which may take some seconds: ${what}.`)
    const { mended, waiting } = yield* run(Stranded.handOn(operator, told))
    for (const what of mended) yield* teller.tell("mends", `Tidied up: ${what}.`)
    for (const what of waiting)
      yield* teller.tell("sees", `The service goes on with this, and the drill does not wait: ${what}.`)
  }).pipe(Effect.orDie)
  // It runs once all that is broken below is mended.
  yield* Effect.addFinalizer((exit) => (Exit.isSuccess(exit) ? Effect.void : tidyUp))
  const customer = `${Stranded.customers}${drill}-${(yield* Random.nextIntBetween(0, 2 ** 31)).toString(36)}`
  const orders = yield* Ref.make<ReadonlyArray<string>>([])
  let placed = 0

  /** Asks the service. It answers with a status and JSON. */
  const ask = Effect.fnUntraced(
    function* (method: "GET" | "POST", path: string, body?: unknown, key?: string) {
      let request = HttpClientRequest.make(method)(`${url}${path}`)
      if (key !== undefined) request = HttpClientRequest.setHeader(request, "idempotency-key", key)
      if (body !== undefined) request = HttpClientRequest.bodyJsonUnsafe(request, body)
      const response = yield* client.execute(request)
      return { status: response.status, json: yield* response.json, path }
    },
    (effect) =>
      effect.pipe(
        Effect.timeout(answerMillis),
        Effect.mapError(() => refuse(`nothing answers at ${url}: ${start} (or name the service with --url)`))
      )
  )
  const expecting = <E, R>(
    statuses: ReadonlyArray<number>,
    asked: Effect.Effect<{ readonly status: number; readonly json: unknown; readonly path: string }, E, R>
  ) =>
    Effect.flatMap(asked, ({ json, path, status }) =>
      statuses.includes(status)
        ? Effect.succeed(json)
        : Effect.fail(new DrillFailed({ reason: `${path} is answered with ${status}: ${JSON.stringify(json)}` }))
    )

  yield* ask("GET", "/health/live")
  if ((yield* faults.list).processes.length === 0)
    return yield* refuse(`this service takes no faults, and so is no service to break: stop it, and ${start}`)

  const paused = yield* run(
    Effect.flatMap(SqlClient.SqlClient, (sql) =>
      pauses(sql`SELECT kind, name FROM operator_pauses ORDER BY kind, name`)
    )
  )
  for (const { kind, name } of paused)
    yield* teller.tell(
      "sees",
      `The ${kind} ${name} is paused. What the drill waits for may not come before it is resumed.`
    )

  /** Breaks it until the returned effect mends it, or the scope closes. */
  const hurt = Effect.fnUntraced(function* (breakage: Breakages.Breakage) {
    let isWhole = false
    const mend = Effect.suspend(() => (isWhole ? Effect.void : run(breakage.mend))).pipe(
      Effect.retry(Breakages.retries),
      Effect.tap(Effect.sync(() => void (isWhole = true))),
      Effect.orDie,
      Effect.uninterruptible
    )
    yield* Effect.acquireRelease(Effect.orDie(Effect.retry(run(breakage.break), Breakages.retries)), () =>
      Effect.suspend(() =>
        isWhole
          ? Effect.void
          : Effect.andThen(mend, teller.tell("mends", `Tidied up what was broken: ${breakage.what}.`))
      )
    )
    return mend
  })

  /** Arms a fault until the returned effect clears it, or the scope closes. */
  const arm = Effect.fnUntraced(function* (point: string, action: Fault["action"]) {
    const clear = Effect.orDie(faults.clear(point, operator))
    yield* Effect.acquireRelease(
      Effect.orDie(faults.set(point, { action, times: 1, delayMillis: 0 }, operator)),
      () => clear
    )
    return clear
  })

  const timeline = (id: string) =>
    Effect.flatMap(expecting([200], ask("GET", `/orders/${id}/timeline`)), (json) => Effect.orDie(decodeTimeline(json)))

  return {
    url,
    customer,
    operator,
    teller,
    /** On the owner's connection. */
    run,
    hurt,
    arm,
    timeline,
    /** The service's own word about itself. Fails where it is unready. */
    health: Effect.flatMap(expecting([200], ask("GET", "/health/ready")), (json) =>
      Effect.orDie(Effect.map(decodeHealth(json), ({ status }) => status))
    ),
    /** The orders of this drill. */
    orders: Ref.get(orders),
    /** Where a person sees the order. */
    pageOf: (id: string) => `${url}/console/orders/${id}`,
    /** Places an order of this many lines, for EUR 12.50 each. */
    place: Effect.fnUntraced(function* (lineCount = 1) {
      const number = placed++
      const lines = Array.from({ length: lineCount }, (_, index) => ({
        sku: `drill-book-${index}`,
        quantity: 1,
        unitAmountMinor: 1_250
      }))
      const body = { customerId: customer, currency: "EUR", lines }
      const json = yield* expecting([201], ask("POST", "/orders", body, `${customer}-place-${number}`))
      const { id } = yield* Effect.orDie(decodeOrder(json))
      const { count } = yield* run(
        Effect.flatMap(SqlClient.SqlClient, (sql) =>
          counted(sql`SELECT count(*)::int4 AS count FROM orders WHERE id = ${id}::uuid`)
        )
      )
      if (count === 0) return yield* refuse(`the service at ${url} has another database than this command`)
      yield* Ref.update(orders, (all) => [...all, id])
      return id
    }),
    /** Pays the order, or begins to: 202 while the gateway's outcome is unknown. */
    pay: (id: string, paymentMethod = "pm_ok") =>
      expecting([200, 202], ask("POST", `/orders/${id}/pay`, { paymentMethod }, `${id}-${paymentMethod}`)),
    /** Asks for the order's money back. */
    refund: (id: string) => expecting([202], ask("POST", `/orders/${id}/refund`)),
    /** Waits until each of the order's events is published, and applied by all consumers but these. */
    applied: (id: string, events: number, ...but: ReadonlyArray<string>) =>
      teller.until(
        `${countOf(events, "event")} of the order ${id} to be applied`,
        Effect.map(
          timeline(id),
          (view) =>
            view.events.length === events &&
            view.events.every(
              ({ consumers, delivery }) =>
                delivery.state === "published" &&
                Object.entries(consumers).every(([name, state]) => state === "applied" || but.includes(name))
            )
        )
      )
  }
})

export type Ground = Effect.Success<ReturnType<typeof make>>

/** What a drill may fail with. */
export type Failure = DrillFailed | Turn.DrillRefused | SqlError.SqlError

/** A drill's steps; what it needs beside the ground is in `R`. It ends with what it has to check itself. */
export type Steps<R = never> = (
  ground: Ground
) => Effect.Effect<ReadonlyArray<readonly [what: string, holds: boolean]>, Failure, R | Scope.Scope>
