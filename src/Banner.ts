/** The banner of a process that is ready: its parts, its URLs, and three commands to try. */
import { Console, Effect, Layer, Option } from "effect"
import { Broker } from "./brokers/Broker.ts"
import type { AppConfig } from "./Config.ts"
import type { Role } from "./Roles.ts"
import { BoundAddress } from "./http/HttpServer.ts"
import { GatewayServer } from "./sandbox/GatewayServer.ts"

const lines = (url: string, key: string) => [
  "",
  `Try it (place an order, pay it, see where its events are)${key === "" ? ":" : ", with KEY=… :"}`,
  `  ORDER=$(curl -s${key} ${url}/orders -H 'content-type: application/json' -d '{"customerId":"ada","currency":"EUR","lines":[{"sku":"book","quantity":2,"unitAmountMinor":1250}]}' | grep -o '"id":"[^"]*"' | cut -d'"' -f4); echo $ORDER`,
  `  curl -s${key} ${url}/orders/$ORDER/pay -H 'content-type: application/json' -H "idempotency-key: pay-$ORDER" -d '{"paymentMethod":"pm_ok"}'`,
  `  curl -s${key} ${url}/orders/$ORDER/timeline`,
  "",
  `Docs: ${url}/docs   Health: ${url}/health/ready   Metrics: ${url}/metrics   Ctrl-C stops it.`
]

/** Prints it, as text or as one line of JSON. */
export const layer = (options: {
  readonly config: AppConfig
  readonly roles: ReadonlySet<Role>
  readonly json: boolean
}): Layer.Layer<never, never, Broker> =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { config, json, roles } = options
      const broker = yield* Broker
      const address = Option.getOrUndefined(yield* Effect.serviceOption(BoundAddress))
      const url = address?.url ?? null
      const consoleUrl = address?.consoleUrl
      if (json) {
        return yield* Console.log(
          JSON.stringify({ ready: true, pid: process.pid, url, consoleUrl, roles: [...roles], broker: broker.name })
        )
      }
      const text = [
        `Paid Once is running (pid ${process.pid}): ${[...roles].join(", ")}.`,
        `  Postgres   ${config.databaseUrl === undefined ? `embedded, data under ${config.dataDirectory}` : "DATABASE_URL"}`,
        `  Broker     ${broker.name === "kafka" ? `Kafka at ${config.kafkaBrokers?.join(", ")}` : "embedded, in Postgres"}`,
        ...(url === null
          ? ["  Health     nowhere: PORT is not set"]
          : !roles.has("http")
            ? [`  Health     ${url}/health/ready   Metrics ${url}/metrics`]
            : [
                `  Gateway    ${config.gatewayUrl?.url ?? `a sandbox beside the service, at ${Option.match(yield* Effect.serviceOption(GatewayServer), { onNone: () => "a port of its own", onSome: ({ url }) => url })}`}`,
                `  HTTP       ${url}`,
                `  Console    ${consoleUrl}${consoleUrl?.includes("?") === true ? "   (this link signs in once)" : ""}`,
                `  API keys   ${config.apiKeys === undefined ? "none: whoever reaches this machine may place, pay and refund orders; the console and /admin need a sign-in" : `of ${[...new Set(config.apiKeys.map(({ name }) => name))].join(", ")}`}`,
                ...lines(url, config.apiKeys === undefined ? "" : ' -H "authorization: Bearer $KEY"')
              ])
      ]
      yield* Console.log(text.join("\n"))
    })
  )
