/** The whole service over a Kafka that demands TLS, a user and rights; and what its log says while that Kafka refuses it or is away. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer, Redacted, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { randomUUID } from "node:crypto"
import { afterAll, beforeAll } from "vitest"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { eventually } from "../support/Counters.ts"
import * as KafkaSource from "../support/KafkaSource.ts"
import { neededRules, password, SecureKafka, user } from "../support/SecureKafka.ts"
import * as TcpProxy from "../support/TcpProxy.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import { endToEnd } from "./EndToEnd.ts"
import * as Targets from "./Targets.ts"

const local = await Effect.runPromise(KafkaSource.decideLocalKafka)
if (local._tag === "Unavailable") {
  const missing = `none of e2e/KafkaAccess.test.ts ran (the whole service over a guarded Kafka): ${local.missing}`
  if (process.env["CI"] === "true") throw new Error(missing)
  process.stderr.write(`SKIPPED: ${missing}\n`)
}

const scope = Effect.runSync(Scope.make())
let kafka: SecureKafka["Service"]
beforeAll(async () => {
  if (local._tag === "Unavailable") return
  kafka = await Effect.runPromise(
    Effect.map(Layer.buildWithScope(SecureKafka.layer, scope), (context) => context.mapUnsafe.get(SecureKafka.key))
  )
})
afterAll(() => Effect.runPromise(Scope.close(scope, Exit.void)))

/** Variables of a service with topics and groups of its own. */
const guarded = (mechanism = "scram-sha-512") => {
  const target = Targets.kafka(kafka.plainServer)
  const env = {
    ...target.env,
    KAFKA_BROKERS: kafka.server("sasl"),
    KAFKA_SSL: "on",
    KAFKA_SSL_CA: kafka.ca,
    KAFKA_SASL_MECHANISM: mechanism,
    KAFKA_SASL_USERNAME: user,
    KAFKA_SASL_PASSWORD: password
  }
  return { ...target, env, prefix: target.env["KAFKA_PREFIX"]! }
}

const start = (env: Readonly<Record<string, string>>) =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const directory = yield* TestDatabase.dataDirectory
    const service = yield* ServiceProcess.start({
      env: { DATABASE_URL: Redacted.value(url), DATA_DIRECTORY: directory, PORT: "0", LOG_LEVEL: "Info", ...env }
    })
    return {
      ...service,
      url: service.url!,
      /** What an operator reads of the outage: the sentences of its lines, and stacks. */
      lines: () =>
        service
          .output()
          .split("\n")
          .flatMap((line) => /.*(?:unavailable|available again|restarted in).*|^\s+at .*/.exec(line)?.[0] ?? [])
          .map((line) => /message="((?:[^"\\]|\\.)*)"/.exec(line)?.[1]?.replaceAll('\\"', '"') ?? line)
    }
  })

const placeOrder = (url: string) =>
  Effect.promise(async () => {
    const response = await fetch(`${url}/orders`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        customerId: "ada",
        currency: "EUR",
        lines: [{ sku: "book", quantity: 1, unitAmountMinor: 100 }]
      })
    })
    return response.status
  })

const healthOf = (url: string) =>
  Effect.promise(async () => {
    const response = await fetch(`${url}/health/ready`)
    return { code: response.status, status: ((await response.json()) as { readonly status: string }).status }
  })

const applied = eventually(
  "the event to be applied by all consumers",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [row] = yield* sql<{ readonly applied: number; readonly queued: number }>`
      SELECT (SELECT count(*) FROM processed_events)::int4 AS applied, (SELECT count(*) FROM outbox_events)::int4 AS queued`
    return row!.applied === 4 && row!.queued === 0
  })
)

/** No event was held or counted as a failure. */
const nothingBurned = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  assert.deepStrictEqual(yield* sql`SELECT DISTINCT status FROM outbox_status WHERE status <> 'published'`, [])
  assert.deepStrictEqual(yield* sql`SELECT * FROM outbox_dead_letters`, [])
})

const seen = (service: { readonly lines: () => ReadonlyArray<string> }, text: RegExp) =>
  eventually(
    `the line ${text}`,
    Effect.sync(() => service.lines().some((line) => text.test(line)))
  )

const isReminder = (line: string) => / is unavailable since /.test(line)

describe.skipIf(local._tag === "Unavailable")("a guarded Kafka", () => {
  endToEnd(
    "Kafka with TLS, SASL and an access list",
    Effect.suspend(() => {
      const target = guarded()
      return Effect.as(kafka.allow(...neededRules(target.prefix)), target)
    })
  )

  it.live(
    "without rights the service is degraded and says which one is missing, once; granted, it goes on by itself",
    () =>
      Effect.gen(function* () {
        const { env, prefix } = guarded("plain")
        // Enough to send, and not to read.
        const rules = neededRules(prefix)
        const [read, ...others] = rules.filter(({ resource }) => resource === "topic")
        const service = yield* start(env)
        assert.strictEqual(yield* placeOrder(service.url), 201)
        const denied = (operation: string, on: string) =>
          `topic orders is unavailable: Kafka denies User:paid-once the operation ${operation} on ${on}: allow it in an ACL`
        const isDegraded = Effect.map(
          healthOf(service.url),
          ({ code, status }) => code === 200 && status === "degraded"
        )
        yield* eventually("degraded, and ready", isDegraded)
        yield* seen(service, /denies User:paid-once the operation Describe on topic/)
        yield* kafka.allow(...others)
        yield* seen(service, /denies User:paid-once the operation Read on group/)
        yield* kafka.allow({ operation: "Read", resource: "group", prefix })
        yield* seen(service, /denies User:paid-once the operation Read on topic/)
        // The groups are told one by one: each needs a right of its own. Each is told once, but for reminders. A Kafka that falls silent on a slow
        // machine has lines of its own, which don't count.
        const denials = () =>
          service
            .lines()
            .filter((line) => /^topic orders is unavailable\b.*Kafka denies/.test(line))
            .map((line) => line.replace(/ \(\w+_AUTHORIZATION_FAILED\)$/, ""))
        const firsts = () => denials().filter((line) => !isReminder(line))
        const told = firsts()
        assert.strictEqual(new Set(told).size, told.length, told.join("\n"))
        assert.deepStrictEqual(
          [...new Set(denials().map((line) => line.replace(/ since [^:]+:/, ":").replace(/group \S+:/, "group:")))],
          [
            denied("Describe", `topic ${prefix}orders`),
            denied("Read", "group"),
            denied("Read", `topic ${prefix}orders`)
          ]
        )
        yield* kafka.allow(read!)
        yield* applied
        yield* nothingBurned
        yield* seen(service, /^topic orders is available again: /)
        yield* eventually(
          "ready",
          Effect.map(healthOf(service.url), ({ status }) => status === "ready")
        )
        assert.deepStrictEqual(firsts(), told)
        assert.notMatch(service.output(), /^\s+at /m)
      }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool)),
    300_000
  )

  it.live(
    "a wrong password is one line with what to change, and no secret",
    () =>
      Effect.gen(function* () {
        const { env } = guarded()
        const service = yield* start({ ...env, KAFKA_SASL_PASSWORD: "wr0ng-secret" })
        assert.strictEqual(yield* placeOrder(service.url), 201)
        // The log has told it, and all loops have failed on it several times.
        const restarts = Effect.promise(async () => {
          const text = await (await fetch(`${service.url}/metrics`)).text()
          return [...text.matchAll(/^fiber_restarts_total\{fiber="consumer \w+"\} (\d+)/gm)].map((match) =>
            Number(match[1])
          )
        })
        yield* eventually(
          "three restarts of each consumer",
          Effect.map(restarts, (counts) => counts.length === 4 && counts.every((count) => count >= 3))
        )
        const told = service.lines().filter((line) => !isReminder(line) && !/timed out|timeout/.test(line))
        assert.deepStrictEqual(told, [
          `the broker is unavailable: Kafka: it does not accept the user "paid-once": check KAFKA_SASL_USERNAME, KAFKA_SASL_PASSWORD and KAFKA_SASL_MECHANISM`
        ])
        assert.notInclude(service.output(), "wr0ng-secret")
        assert.deepStrictEqual(yield* healthOf(service.url), { code: 200, status: "degraded" })
      }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool)),
    300_000
  )

  it.live(
    "a Kafka that is away is a line when it begins, one a minute, and one when it is back",
    () =>
      Effect.gen(function* () {
        const { port } = kafka.broker.direct
        const proxy = yield* TcpProxy.make({ upstream: { host: "127.0.0.1", port } })
        yield* proxy.refuse
        const service = yield* start({
          KAFKA_BROKERS: `127.0.0.1:${proxy.port}`,
          KAFKA_PREFIX: `away-${randomUUID()}-`
        })
        assert.strictEqual(yield* placeOrder(service.url), 201)
        yield* eventually(
          "the first reminder",
          Effect.sync(() => service.lines().length >= 2),
          100
        )
        yield* proxy.pass
        yield* applied
        yield* seen(service, /available again/)
        const reason = `Connection error: connect ECONNREFUSED 127.0.0.1:${proxy.port}`
        const [began, ended, ...more] = service.lines().filter((line) => !isReminder(line))
        assert.strictEqual(began, `the broker is unavailable: ${reason}`)
        const minutes = Number(
          /^the broker is available again: nothing waits for it any more, (\d+)m( \d+s)? after the first failure; it was: /.exec(
            ended!
          )?.[1]
        )
        const reminders = service.lines().filter(isReminder)
        assert.match(reminders[0]!, /^the broker is unavailable since 1m( \d+s)?: /)
        assert.isAtMost(reminders.length, minutes, reminders.join("\n"))
        assert.deepStrictEqual(more, [])
        yield* nothingBurned
      }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool)),
    300_000
  )
})
