/** The handlers of the groups in `InstallationApi.ts`. */
import { Effect, Layer, Option, Struct } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "../Api.ts"
import { Problem } from "../Problems.ts"
import { answering, decide } from "./AdminAnswers.ts"
import { GatewayBehaviour } from "./GatewayBehaviour.ts"
import { TellBody } from "./InstallationApi.ts"
import { SettingsInForce } from "./SettingsInForce.ts"

const settings = HttpApiBuilder.group(
  Api,
  "adminSettings",
  Effect.fn(function* (handlers) {
    const items = yield* SettingsInForce
    return handlers.handle("list", () => Effect.succeed({ items }))
  })
)

const elsewhere = new Problem({ status: 404, detail: "the gateway is another company's: GATEWAY_URL names it" })

const gateway = HttpApiBuilder.group(
  Api,
  "adminGateway",
  Effect.fn(function* (handlers) {
    const found = yield* GatewayBehaviour
    const sandbox = Option.match(found, { onNone: () => Effect.fail(elsewhere), onSome: Effect.succeed })
    return handlers
      .handle("behaviour", () => answering(Effect.flatMap(sandbox, ({ get }) => get)))
      .handleRaw("tell", () =>
        decide(TellBody, (operator, body) =>
          Effect.flatMap(sandbox, ({ tell }) => tell(Struct.omit(body, ["reason"]), operator))
        )
      )
  })
)

export const layer = Layer.merge(settings, gateway)
