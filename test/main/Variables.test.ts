/** What a wrong or misspelt variable is answered with. */
import { assert, it } from "@effect/vitest"
import { ConfigProvider, Effect, Redacted } from "effect"
import * as Config from "../../src/Config.ts"
import * as UnknownVariables from "../../src/UnknownVariables.ts"

const load = (environment: Readonly<Record<string, string>>) =>
  Effect.provide(Config.load, ConfigProvider.layer(ConfigProvider.fromUnknown(environment)))

const problemsOf = (environment: Readonly<Record<string, string>>) =>
  Effect.map(Effect.flip(load(environment)), ({ message }) => message)

it.effect("no password is shown, whichever variable it was written into by mistake", () =>
  Effect.gen(function* () {
    const wrong = "ftp://ada:hunter2@host:1,ada:hunter2@other:x"
    const text = yield* problemsOf(Object.fromEntries(Config.variableNames.map((name) => [name, wrong])))
    assert.notInclude(text, "hunter2")
    for (const name of ["GATEWAY_URL", "GATEWAY_WEBHOOK_URL", "OTEL_EXPORTER_OTLP_ENDPOINT", "DATABASE_URL", "PORT"]) {
      assert.include(text, `${name}: `)
    }
  })
)

it.effect("user and password of a gateway, a receiver or a collector are no part of the address that is printed", () =>
  Effect.gen(function* () {
    const { gatewayUrl, gatewayWebhookUrl, otlpEndpoint } = yield* load({
      GATEWAY_URL: "https://ada:hun%3Ater2@gateway.example",
      GATEWAY_WEBHOOK_URL: "https://ada:hun%3Ater2@shop.example/webhooks?from=gateway",
      GATEWAY_WEBHOOK_SECRET: "a-secret-of-two-companies",
      OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector.example/base"
    })
    assert.deepStrictEqual(
      [gatewayUrl?.url, gatewayWebhookUrl?.url, otlpEndpoint?.url],
      ["https://gateway.example", "https://shop.example/webhooks?from=gateway", "http://collector.example/base"]
    )
    const sent = `Basic ${Buffer.from("ada:hun:ter2").toString("base64")}`
    assert.deepStrictEqual(
      [gatewayUrl, gatewayWebhookUrl, otlpEndpoint].map((target) =>
        target?.authorization === undefined ? undefined : Redacted.value(target.authorization)
      ),
      [sent, sent, undefined]
    )
    assert.match(yield* problemsOf({ GATEWAY_URL: "http://gateway.example/?x=1" }), /without a query/)
  })
)

it.effect("a timeout of the gateway lies far inside the time for which it keeps keys", () =>
  Effect.gen(function* () {
    const refused = { GATEWAY_TIMEOUT_MILLIS: "60001", GATEWAY_KEY_RETENTION: "10m" }
    assert.match(yield* problemsOf(refused), /^GATEWAY_TIMEOUT_MILLIS must be at most a tenth of GATEWAY_KEY_RETENTION/)
    yield* load({ ...refused, GATEWAY_TIMEOUT_MILLIS: "60000" })
  })
)

const found = (...names: ReadonlyArray<string>) =>
  UnknownVariables.find(names, Config.variableNames).map(({ meant, name }) => `${name} ${meant ?? "-"}`)

it("a variable that looks like one of ours is named, with the one that was meant", () => {
  assert.deepStrictEqual(
    found("DATABSE_URL", "DATABASE_URI", "database_url", "KAFKA_BROKER", "FAULT", "LOGLEVEL", "OUTBOX_BATCHSIZE"),
    [
      "DATABSE_URL DATABASE_URL",
      "DATABASE_URI DATABASE_URL",
      "database_url DATABASE_URL",
      "KAFKA_BROKER KAFKA_BROKERS",
      "FAULT FAULTS",
      "LOGLEVEL LOG_LEVEL",
      "OUTBOX_BATCHSIZE OUTBOX_BATCH_SIZE"
    ]
  )
})

it("with a first word of ours a name may differ more, and under OUTBOX_ and INBOX_ every unknown name is named", () => {
  assert.deepStrictEqual(found("GATEWAY_TIMEOUT", "TASK_LEASE_SECONDS", "GATEWAY_WEBHOK_SERCET", "OUTBOX_COLOUR"), [
    "GATEWAY_TIMEOUT GATEWAY_TIMEOUT_MILLIS",
    "TASK_LEASE_SECONDS TASK_LEASE_MILLIS",
    "GATEWAY_WEBHOK_SERCET GATEWAY_WEBHOOK_SECRET",
    "OUTBOX_COLOUR -"
  ])
})

/** What shells, npm, CI systems, Docker, Kubernetes, Kafka's images, database clients and CGI set. */
const foreign = `
  HOME PATH PWD OLDPWD SHELL SHLVL TERM USER LOGNAME LANG LC_ALL TZ EDITOR DISPLAY HOSTNAME HOSTTYPE POSIXLY_CORRECT PS1 MAIL MAILTO LINES _
  npm_config_port npm_config_host npm_package_name npm_lifecycle_event NODE_ENV NODE_OPTIONS NODE_PATH COLOR FORCE_COLOR NO_COLOR DEBUG
  CI GITHUB_ACTIONS GITHUB_TOKEN GITHUB_RUN_ID RUNNER_OS GITLAB_CI CI_JOB_ID CI_PORT BUILD_ID JENKINS_URL TRAVIS CIRCLECI TASK_DISPLAYNAME
  TASK_ID TASK_NAME ECS_CONTAINER_METADATA_URI AWS_REGION DYNO VERCEL_URL FLY_APP_NAME RAILWAY_PORT PORTS
  KUBERNETES_PORT KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT KUBERNETES_SERVICE_PORT_HTTPS KUBERNETES_PORT_443_TCP_ADDR
  KAFKA_PORT KAFKA_SERVICE_HOST KAFKA_SERVICE_PORT KAFKA_SERVICE_PORT_CLIENT KAFKA_PORT_9092_TCP KAFKA_PORT_9092_TCP_ADDR
  KAFKA_PORT_9092_TCP_PORT KAFKA_PORT_9092_TCP_PROTO GATEWAY_SERVICE_HOST GATEWAY_SERVICE_PORT GATEWAY_PORT_80_TCP GATEWAY_INTERFACE
  PAYMENT_SERVICE_HOST PAYMENT_PORT OUTBOX_SERVICE_HOST KAFKA_HEAP_OPTS KAFKA_OPTS KAFKA_HOME KAFKA_LOG4J_OPTS KAFKA_ADVERTISED_LISTENERS
  KAFKA_VERSION KAFKA_CFG_LISTENERS MAIL_PORT SMTP_HOST SMTP_PORT POSTGRES_USER POSTGRES_PASSWORD POSTGRES_DB PGHOST PGPORT PGUSER
  REDIS_URL MYSQL_URL HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy OTEL_RESOURCE_ATTRIBUTES OTEL_TRACES_SAMPLER
  OTEL_EXPORTER_OTLP_PROTOCOL OTEL_LOGS_EXPORTER SSH_AUTH_SOCK SSL_CERT_FILE XDG_RUNTIME_DIR VITEST TEST_DATABASE_URL
`
  .trim()
  .split(/\s+/)

it("the variables of shells, npm, CI, Docker, Kubernetes and other programs raise no alarm", () => {
  assert.deepStrictEqual(found(...foreign), [])
  // The environment that this test runs in, whatever it is. A variable of ours that is set is known.
  assert.deepStrictEqual(found(...Object.keys(process.env)), [])
})

it.effect(
  "the link that Kubernetes sets for a service called gateway is no port of ours, and anything else is refused",
  () =>
    Effect.gen(function* () {
      for (const link of ["tcp://10.96.0.7:80", "udp://[fd00::7]:53", "sctp://10.96.0.7:9000"]) {
        assert.strictEqual((yield* load({ GATEWAY_PORT: link })).gatewayPort, 3_001)
      }
      for (const wrong of ["tcp://gateway", "tcp://ada:x@10.96.0.7:80", "http://10.96.0.7:80", "80a"]) {
        assert.match(yield* problemsOf({ GATEWAY_PORT: wrong }), /GATEWAY_PORT: /)
      }
      assert.match(yield* problemsOf({ PORT: "tcp://10.96.0.7:80" }), /PORT: /)
    })
)

it.effect("a database's URL may leave out the host, as libpq's of a Unix socket does", () =>
  Effect.gen(function* () {
    for (const [given, read] of [
      ["postgres://ada:x@/shop?host=/run/pg", "postgres://ada:x@localhost/shop?host=/run/pg"],
      ["postgresql:///shop?host=/run/pg", "postgresql://localhost/shop?host=/run/pg"],
      ["postgres://ada:x@db.example/shop", "postgres://ada:x@db.example/shop"]
    ] as const) {
      const { databaseUrl } = yield* load({ DATABASE_URL: given })
      assert.strictEqual(databaseUrl && Redacted.value(databaseUrl), read)
    }
  })
)
