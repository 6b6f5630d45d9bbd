/**
 * The whole service as a process that is killed at random. Concurrent clients place, pay (by every payment method), cancel and refund
 * orders, and repeat every unanswered request with its key. The gateway runs in another process, which survives. In the end all faults
 * stop, and orders, payments, the gateway's ledger and the subscribers' books are compared.
 */
import { Effect, Fiber, Layer, Random, Redacted, Ref, Schedule, Schema, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import * as ServiceProcess from "../../../src/cli/ServiceProcess.ts"
import { DatabaseSettings } from "../../../src/platform/DatabaseSettings.ts"
import * as Database from "../../../src/postgres/Database.ts"
import { GatewayServer, GatewayServerSettings } from "../../../src/sandbox/GatewayServer.ts"
import { differences, unrest } from "./Books.ts"

const methods = ["pm_ok", "pm_declined", "pm_slow", "pm_timeout_then_captured", "pm_timeout_then_nothing", "pm_flaky"]

/** Concurrent orders. */
const clients = 12
/** Requests between two kills, at random: some kills come while the service still recovers from the last one. */
const requestsBetween = [5, 60] as const
/** Everything is at rest far sooner after the last kill. A soak that is not has found a mistake. */
const restTimeout = "240 seconds"
const secret = "a-secret-of-two-companies"

/** The run fails with all broken promises. */
export class SoakFailed extends Schema.TaggedError<SoakFailed>()("SoakFailed", {
  reasons: Schema.Array(Schema.String)
}) {
  override get message() {
    return this.reasons.join("\n")
  }
}

class Unreachable extends Schema.TaggedError<Unreachable>()("Unreachable", {}) {}

interface Answer {
  readonly status: number
  readonly text: string
}

/** A request with a final answer: repeated at the end, it must get the same answer. */
interface Final {
  readonly path: string
  readonly key: string
  readonly body: object
  readonly answer: Answer
}

export interface SoakReport {
  readonly orders: number
  readonly kills: number
  readonly byStatus: Readonly<Record<string, number>>
  readonly captured: number
  readonly refunded: number
}

const send = (url: string, path: string, body: object, key?: string) =>
  Effect.tryPromise({
    try: async (signal): Promise<Answer> => {
      const response = await fetch(`${url}${path}`, {
        method: "POST",
        signal,
        headers: { "content-type": "application/json", ...(key === undefined ? {} : { "idempotency-key": key }) },
        body: JSON.stringify(body)
      })
      return { status: response.status, text: await response.text() }
    },
    catch: () => new Unreachable()
  })

const idOf = (text: string) => (JSON.parse(text) as { readonly id: string }).id
const isInProgress = ({ status, text }: Answer) => status === 409 && text.includes("still being processed")

/** Runs until the service was killed `kills` times. The database is migrated or empty; `directory` holds its files. */
export const soak = Effect.fnUntraced(function* (options: {
  readonly url: Redacted.Redacted
  readonly directory: string
  readonly kills: number
}): Effect.fn.Return<SoakReport, unknown, Scope.Scope> {
  const pool = yield* Layer.build(
    Database.layer.pipe(Layer.provide(DatabaseSettings.layerOf({ url: options.url, maxConnections: 8 })))
  )
  const gateway = yield* GatewayServer.pipe(
    Effect.provide(
      yield* Layer.build(
        GatewayServer.layer.pipe(
          Layer.provide(Layer.succeed(GatewayServerSettings, { port: 0 })),
          Layer.provide(Layer.succeedContext(pool))
        )
      )
    )
  )
  const start = Effect.gen(function* () {
    const service = yield* ServiceProcess.start({
      env: {
        DATABASE_URL: Redacted.value(options.url),
        DATA_DIRECTORY: options.directory,
        PORT: "0",
        LOG_LEVEL: "Error",
        GATEWAY_URL: gateway.url,
        GATEWAY_WEBHOOK_SECRET: secret,
        GATEWAY_TIMEOUT_MILLIS: "500",
        // Many short delays, since each kill in the middle of a run uses up one.
        PAYMENT_RECOVER_DELAYS: ["100ms", ...Array.from({ length: 40 }, () => "1s")].join(","),
        TASK_LEASE_MILLIS: "1500",
        TASK_HEARTBEAT_MILLIS: "300"
      }
    })
    yield* gateway.reportTo({ url: `${service.url}/webhooks/gateway`, secret: Redacted.make(secret) })
    return service
  })

  const first = yield* start
  const base = yield* Ref.make(first.url!)
  const requests = yield* Ref.make(0)
  const orders = yield* Ref.make(0)
  const isOver = yield* Ref.make(false)
  const finals: Array<Final> = []

  /** Repeats the request until the answer satisfies `isDone`. */
  const insist = (path: string, body: object, key: string | undefined, isDone: (answer: Answer) => boolean) =>
    Effect.flatMap(Ref.get(base), (url) => send(url, path, body, key)).pipe(
      Effect.timeout("5 seconds"),
      Effect.tap(Ref.update(requests, (n) => n + 1)),
      Effect.filterOrFail(
        (answer) => answer.status < 500 && isDone(answer),
        () => new Unreachable()
      ),
      Effect.retry(Schedule.spaced("50 millis")),
      Effect.timeout(restTimeout)
    )
  const sometimes = <A, E>(share: number, effect: Effect.Effect<A, E>) =>
    Effect.flatMap(Random.next, (drawn): Effect.Effect<void, E> =>
      drawn < share ? Effect.asVoid(effect) : Effect.void
    )
  const pause = Effect.flatMap(Random.nextIntBetween(0, 120), (millis) => Effect.sleep(millis))

  const payment = Effect.fnUntraced(function* (id: string, key: string) {
    const paymentMethod = methods[yield* Random.nextIntBetween(0, methods.length - 1)]!
    const path = `/orders/${id}/pay`
    const body = { paymentMethod }
    const answer = yield* insist(path, body, key, (heard) => heard.status !== 202 && !isInProgress(heard))
    if (answer.status !== 409) finals.push({ path, key, body, answer })
    return answer.status
  })

  const client = Effect.gen(function* () {
    while (!(yield* Ref.get(isOver))) {
      const number = yield* Ref.updateAndGet(orders, (n) => n + 1)
      const body = {
        customerId: `customer-${number % 7}`,
        currency: number % 5 === 0 ? "USD" : "EUR",
        lines: [{ sku: "book", quantity: 1 + (number % 3), unitAmountMinor: 1_000 + number }]
      }
      const key = `place-${number}`
      const placed = yield* insist("/orders", body, key, () => true)
      finals.push({ path: "/orders", key, body, answer: placed })
      const id = idOf(placed.text)
      const cancel = Effect.andThen(
        pause,
        insist(`/orders/${id}/cancel`, {}, undefined, () => true)
      )
      const refund = Effect.andThen(
        pause,
        insist(`/orders/${id}/refund`, {}, undefined, () => true)
      )
      yield* Effect.all(
        [
          Effect.gen(function* () {
            // After a decline the client may try again, with another key.
            for (let attempt = 0; attempt < 3; attempt++) {
              if ((yield* payment(id, `pay-${number}-${attempt}`)) !== 402) break
            }
            yield* sometimes(0.3, Effect.all([refund, refund], { concurrency: "unbounded" }))
          }),
          sometimes(0.3, cancel),
          sometimes(0.1, refund),
          // A second client pays the same order, with a key of its own.
          sometimes(0.2, Effect.andThen(pause, payment(id, `rival-${number}`)))
        ],
        { concurrency: "unbounded", discard: true }
      )
    }
  })

  const working = yield* Effect.forkChild(
    Effect.all(
      Array.from({ length: clients }, () => client),
      { concurrency: "unbounded", discard: true }
    )
  )
  let running = first
  for (let kill = 0; kill < options.kills; kill++) {
    const until = (yield* Ref.get(requests)) + (yield* Random.nextIntBetween(requestsBetween[0], requestsBetween[1]))
    yield* Effect.repeat(Ref.get(requests), { until: (n) => n >= until, schedule: Schedule.spaced("5 millis") }).pipe(
      Effect.timeout(restTimeout)
    )
    yield* running.signal("SIGKILL")
    yield* running.exit
    running = yield* start
    yield* Ref.set(base, running.url!)
  }
  yield* Ref.set(isOver, true)
  yield* Fiber.join(working)

  return yield* Effect.provide(
    Effect.gen(function* () {
      const reasons: Array<string> = []
      const sql = yield* SqlClient.SqlClient
      const atRest = yield* Effect.result(
        Effect.repeat(unrest, { until: (rows) => rows.length === 0, schedule: Schedule.spaced("200 millis") }).pipe(
          Effect.timeout(restTimeout)
        )
      )
      if (atRest._tag === "Failure") {
        reasons.push(...(yield* unrest).map(({ count, what }) => `${count} ${what}, for ever`))
      }
      for (const { answer, body, key, path } of finals) {
        const again = yield* insist(path, body, key, () => true)
        if (again.status !== answer.status || again.text !== answer.text) {
          reasons.push(
            `${path} ${key}: answered ${answer.status} ${answer.text}, and then ${again.status} ${again.text}`
          )
        }
      }
      reasons.push(...(yield* differences))
      if (reasons.length > 0) return yield* new SoakFailed({ reasons })
      const byStatus = yield* sql<{ readonly status: string; readonly count: number }>`
        SELECT status, count(*)::int4 AS count FROM orders GROUP BY status ORDER BY status`
      const [money] = yield* sql<{ readonly captured: number; readonly refunded: number }>`
        SELECT (SELECT count(*) FROM sandbox_gateway.charges WHERE status = 'captured')::int4 AS captured,
               (SELECT count(*) FROM sandbox_gateway.refunds)::int4 AS refunded`
      return {
        orders: yield* Ref.get(orders),
        kills: options.kills,
        byStatus: Object.fromEntries(byStatus.map(({ count, status }) => [status, count])),
        ...money!
      }
    }),
    pool
  )
})
