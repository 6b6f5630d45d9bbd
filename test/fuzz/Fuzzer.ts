/**
 * Drives every endpoint of the running service's OpenAPI document with generated requests, while faults strike, and holds the promises of
 * README.md. A request that breaks one is made smaller and printed as a `curl` command.
 */
import { Clock, Deferred, Effect, Layer, Redacted, Ref, Schema, type Scope } from "effect"
import { FetchHttpClient, HttpClient, HttpClientRequest } from "effect/http"
import { randomUUID } from "node:crypto"
import { DatabaseSettings } from "../../src/platform/DatabaseSettings.ts"
import * as Database from "../../src/postgres/Database.ts"
import { GatewayServer, GatewayServerSettings } from "../../src/sandbox/GatewayServer.ts"
import * as ApiDocument from "../support/ApiDocument.ts"
import { curl } from "./Curl.ts"
import { diceOf } from "./Dice.ts"
import * as Faults from "./Faults.ts"
import type { FuzzRequest } from "./FuzzRequest.ts"
import * as HostileGateway from "./HostileGateway.ts"
import * as Operator from "./Operator.ts"
import * as OrdersTopic from "./OrdersTopic.ts"
import * as Records from "./Records.ts"
import * as Requests from "./Requests.ts"
import * as Rest from "./Rest.ts"
import * as Service from "./Service.ts"
import { shrink } from "./Shrink.ts"
import { type Fault, judge, type Outcome, send } from "./Wire.ts"

/** Requests at the same time: enough for races, and few enough that two cores answer each of them in far less than the limit. */
const clients = 6
const secret = "a-secret-of-two-companies"
/** A request of a hundred bytes is found far sooner; a megabyte is at least cut down to kilobytes. */
const shrinkMillis = 45_000
/** How long after a broken connection the process's end is heard of. */
const endMillis = 1_500
const memoryMillis = 250

/** The service broke a promise. */
export class FuzzFailed extends Schema.TaggedError<FuzzFailed>()("FuzzFailed", {
  seed: Schema.Int,
  reasons: Schema.Array(Schema.String)
}) {
  override get message() {
    return [`with --seed ${this.seed}:`, ...this.reasons].join("\n")
  }
}

export interface FuzzReport {
  readonly seed: number
  readonly requests: number
  readonly byStatus: Readonly<Record<string, number>>
  /** Answers of each endpoint, and how many of them were successes. */
  readonly byEndpoint: Readonly<Record<string, string>>
  readonly strikes: number
  readonly records: number
  readonly badGatewayAnswers: number
  readonly peakMegabytes: number
}

interface Finding {
  readonly what: string
  readonly rule?: Fault["rule"]
  readonly request?: FuzzRequest
  /** What struck when it was found. */
  readonly during: string
}

/** With a key of its own: an answer that is stored under the old one would hide what a smaller request does. */
const withNewKey = (request: FuzzRequest): FuzzRequest => ({
  ...request,
  headers: request.headers.map(([name, value]) => [name, name === "idempotency-key" ? randomUUID() : value])
})

export const fuzz = Effect.fnUntraced(function* (options: {
  /** The database, migrated or empty. */
  readonly url: Redacted.Redacted
  /** Holds the service's files. */
  readonly directory: string
  readonly millis: number
  readonly seed: number
  /** A real Kafka; else the embedded broker. */
  readonly kafka?: { readonly servers: string; readonly prefix: string } | undefined
  /** More variables for the service. */
  readonly env?: Readonly<Record<string, string>>
  readonly log?: (line: string) => void
}): Effect.fn.Return<FuzzReport, unknown, Scope.Scope> {
  const { kafka, log = () => {}, seed } = options
  const pool = yield* Layer.build(
    Database.layer.pipe(
      Layer.provide(DatabaseSettings.layerOf({ url: options.url, maxConnections: 8, applicationName: "fuzzer" }))
    )
  )
  const sandbox = yield* GatewayServer.pipe(
    Effect.provide(
      yield* Layer.build(
        GatewayServer.layer.pipe(
          Layer.provide(Layer.succeed(GatewayServerSettings, { port: 0 })),
          Layer.provide(Layer.succeedContext(pool))
        )
      )
    )
  )
  const gateway = yield* HostileGateway.make(sandbox.url, secret, diceOf(seed * 31 + 1))
  const command = (behaviour: object) =>
    HttpClientRequest.put(`${sandbox.url}/behaviour`).pipe(
      HttpClientRequest.bodyJsonUnsafe(behaviour),
      HttpClient.execute,
      Effect.flatMap((response) => response.text),
      Effect.provide(FetchHttpClient.layer),
      Effect.orDie,
      Effect.asVoid
    )
  const service = yield* Service.make(
    {
      DATABASE_URL: Redacted.value(options.url),
      DATA_DIRECTORY: options.directory,
      PORT: "0",
      LOG_LEVEL: "Error",
      GATEWAY_URL: gateway.url,
      GATEWAY_WEBHOOK_SECRET: secret,
      ADMIN_TOKEN: Operator.token,
      GATEWAY_TIMEOUT_MILLIS: "500",
      // Many short delays: each kill and each nonsense of the gateway uses one up, and none may be the last.
      PAYMENT_RECOVER_DELAYS: ["100ms", ...Array.from({ length: 49 }, () => "1s")].join(","),
      TASK_RETRY_DELAYS: Array.from({ length: 50 }, () => "1s").join(","),
      TASK_LEASE_MILLIS: "1500",
      TASK_HEARTBEAT_MILLIS: "300",
      ...(kafka === undefined
        ? {}
        : { KAFKA_BROKERS: kafka.servers, KAFKA_PREFIX: kafka.prefix, CONSUMER_SESSION_TIMEOUT_MILLIS: "6000" }),
      ...options.env
    },
    (url) => {
      const hook = `${url}/webhooks/gateway`
      return Effect.andThen(sandbox.reportTo({ url: hook, secret: Redacted.make(secret) }), gateway.reportTo(hook))
    }
  )
  const document = yield* Effect.flatMap(service.url, (url) =>
    Effect.promise(async () => ApiDocument.make((await (await fetch(`${url}/openapi.json`)).json()) as never))
  )

  const documented = new Set(document.endpoints.map(({ method, path }) => `${method} ${path}`))
  const isDocumented = ({ endpoint, method }: FuzzRequest) => documented.has(`${method} ${endpoint}`)

  const found = yield* Deferred.make<Finding>()
  const during = yield* Ref.make("nothing strikes")
  const report = (finding: Omit<Finding, "during">) =>
    Effect.flatMap(Ref.get(during), (during) => Deferred.succeed(found, { ...finding, during }))
  const counts = {
    requests: 0,
    strikes: 0,
    peak: 0,
    byStatus: {} as Record<string, number>,
    byEndpoint: new Map<string, [number, number]>()
  }

  /** Sends while the process runs. Undefined: the process was ended meanwhile, which excuses everything. */
  const ask = (request: FuzzRequest): Effect.Effect<Outcome | undefined> =>
    Effect.gen(function* () {
      while (!(yield* service.isUp)) yield* Effect.sleep(20)
      const before = yield* service.epoch
      const outcome = yield* send(yield* service.url, request, secret)
      if (outcome._tag === "Answer") return outcome
      yield* Effect.timeoutOption(service.exit, endMillis)
      return (yield* service.isUp) && (yield* service.epoch) === before ? outcome : undefined
    })

  const client = (requests: Requests.Requests) =>
    Effect.gen(function* () {
      while (true) {
        const request = requests.next()
        const outcome = yield* ask(request)
        if (outcome === undefined) continue
        counts.requests += 1
        requests.learn(request, outcome)
        const status = outcome._tag === "Answer" ? String(outcome.status) : outcome._tag
        counts.byStatus[status] = (counts.byStatus[status] ?? 0) + 1
        const name = isDocumented(request) ? `${request.method} ${request.endpoint}` : "elsewhere"
        const [all, fine] = counts.byEndpoint.get(name) ?? [0, 0]
        counts.byEndpoint.set(name, [all + 1, fine + (outcome._tag === "Answer" && outcome.status < 300 ? 1 : 0)])
        const fault = judge(document, request, outcome)
        if (fault !== undefined) yield* report({ ...fault, request })
      }
    })

  const topic = yield* kafka === undefined
    ? Effect.provide(OrdersTopic.embedded, pool)
    : OrdersTopic.kafka(kafka.servers, kafka.prefix)
  const records = yield* Effect.provide(Records.make(diceOf(seed * 31 + 2), topic), pool)
  const strikeDice = diceOf(seed * 31 + 3)
  const draw = Faults.make({ dice: strikeDice, service, gateway, command, records })
  const strikes = Effect.gen(function* () {
    while (true) {
      yield* Effect.raceFirst(Effect.sleep(200 + strikeDice.int(1_500)), service.exit)
      const ended = yield* service.ended
      if (ended !== undefined) return yield* report({ what: ended })
      const strike: Faults.Strike = (yield* service.isUp)
        ? draw()
        : { what: "a start after a crash that was set", run: service.restart("SIGKILL", "") }
      log(strike.what)
      counts.strikes += 1
      yield* Ref.set(during, strike.what)
      const wrong = yield* strike.run
      if (wrong !== undefined) yield* report({ what: wrong })
    }
  }).pipe(Effect.provide(pool))

  const memory = Effect.gen(function* () {
    while (true) {
      const bytes = yield* service.residentBytes
      counts.peak = Math.max(counts.peak, bytes)
      if (bytes > Service.maxResidentBytes)
        yield* report({ what: `its memory has grown to ${Math.round(bytes / 1_048_576)} MB` })
      yield* Effect.sleep(memoryMillis)
    }
  })

  const startedMillis = yield* Clock.currentTimeMillis
  const finding = yield* Effect.all(
    [
      strikes,
      memory,
      ...Array.from({ length: clients }, (_, index) => client(Requests.make(document, diceOf(seed * 31 + 4 + index))))
    ],
    { concurrency: "unbounded", discard: true }
  ).pipe(
    Effect.as<Finding | undefined>(undefined),
    Effect.raceFirst(Deferred.await(found)),
    Effect.timeoutOrElse({ duration: options.millis, orElse: () => Effect.succeed(undefined) })
  )
  log(
    `after ${Math.round(((yield* Clock.currentTimeMillis) - startedMillis) / 1000)} s: ${finding === undefined ? "at rest?" : finding.what}`
  )

  const calm = Effect.gen(function* () {
    yield* gateway.misbehave(0)
    yield* command({ mode: "normal", webhooks: "once" })
    const wrong = yield* service.restart("SIGTERM", "")
    yield* Effect.flatMap(service.url, Operator.resumeAll)
    return wrong
  })
  if (finding !== undefined) {
    const reasons = [`${finding.what} (while: ${finding.during})`]
    const { request, rule } = finding
    if (request === undefined) return yield* new FuzzFailed({ seed, reasons })
    yield* calm
    const fails = (candidate: FuzzRequest) =>
      Effect.map(
        ask(candidate),
        (outcome) => outcome !== undefined && judge(document, candidate, outcome)?.rule === rule
      )
    const isFresh = yield* fails(withNewKey(request))
    const isRepeatable = isFresh || (yield* fails(request))
    const again = isFresh ? (candidate: FuzzRequest) => fails(withNewKey(candidate)) : fails
    const smallest = isRepeatable ? yield* shrink(request, again, shrinkMillis) : request
    return yield* new FuzzFailed({
      seed,
      reasons: [
        ...reasons,
        isRepeatable ? "The smallest request that fails in the same way:" : "Sent alone it did not fail again. It was:",
        curl(yield* service.url, isFresh ? withNewKey(smallest) : smallest, secret)
      ]
    })
  }

  const reasons = [
    ...[yield* calm].filter((wrong) => wrong !== undefined),
    ...(yield* Effect.provide(Rest.problems(records, gateway.wrongAmounts), pool))
  ]
  if (reasons.length > 0) return yield* new FuzzFailed({ seed, reasons })
  return {
    seed,
    requests: counts.requests,
    byStatus: counts.byStatus,
    byEndpoint: Object.fromEntries(
      [...counts.byEndpoint]
        .toSorted(([a], [b]) => (a < b ? -1 : 1))
        .map(([name, [all, fine]]) => [name, `${fine} of ${all}`])
    ),
    strikes: counts.strikes,
    records: records.count(),
    badGatewayAnswers: gateway.count(),
    peakMegabytes: Math.round(counts.peak / 1_048_576)
  }
})
