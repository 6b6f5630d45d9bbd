/** The sandbox payment gateway: beside the service, or alone in a process of its own. */
import { Console, Context, Effect, Layer } from "effect"
import { WebhookSettings } from "../application/GatewayWebhook.ts"
import type { AppConfig } from "../Config.ts"
import * as HttpServer from "../http/HttpServer.ts"
import { BooksSettings } from "../sandbox/Books.ts"
import { GatewayServer, GatewayServerSettings } from "../sandbox/GatewayServer.ts"

/** The gateway's server, on the pool that it is given. Port 0 picks a free one. */
export const sandbox = (config: AppConfig, port: number) =>
  GatewayServer.layer.pipe(
    Layer.provide(Layer.succeed(GatewayServerSettings, { port })),
    Layer.provide(Layer.succeed(BooksSettings, { keyRetentionMillis: config.gatewayKeyRetentionMillis }))
  )

/** Tells the sandbox beside the service where to report to, once the service answers. Any other gateway is told by its own settings. */
export const webhooks = Layer.effectDiscard(
  Effect.gen(function* () {
    const sandbox = yield* Effect.serviceOption(GatewayServer)
    // The newest one.
    const [secret] = (yield* WebhookSettings).secrets
    const { url } = yield* HttpServer.BoundAddress
    if (sandbox._tag === "Some" && secret !== undefined) {
      yield* sandbox.value.reportTo({ url: `${url}/webhooks/gateway`, secret })
    }
  })
)

/** The sandbox in a process of its own: reports to GATEWAY_WEBHOOK_URL, and prints where it answers. */
export const alone = (config: AppConfig) =>
  sandbox(config, config.gatewayPort).pipe(
    Layer.tap((context) =>
      Effect.gen(function* () {
        const { reportTo, url } = Context.get(context, GatewayServer)
        const target = config.gatewayWebhookUrl
        const secret = config.gatewayWebhookSecrets?.[0]
        if (target !== undefined && secret !== undefined) yield* reportTo({ ...target, secret })
        yield* Console.log(`The sandbox gateway answers at ${url}`)
      })
    )
  )
