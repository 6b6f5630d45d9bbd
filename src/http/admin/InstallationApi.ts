/** The groups of the installation: its settings, and the sandbox gateway beside it. */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { decisionProblems, reading, Reason } from "./AdminParts.ts"
import { Command, State, Told } from "./GatewayBehaviour.ts"
import { Setting } from "./SettingsInForce.ts"

/** The body of `PUT /admin/gateway/behaviour`. */
export const TellBody = Schema.Struct({ ...Command.fields, reason: Reason }).annotate({
  identifier: "TellGateway",
  examples: [{ mode: "down", durationMillis: 30_000, reason: "a drill" }]
})

export const SettingsApi = HttpApiGroup.make("adminSettings")
  .add(
    reading("list", "/admin/settings", {
      success: Schema.Struct({ items: Schema.Array(Setting) }).annotate({ identifier: "Settings" }),
      summary: "List the settings in force",
      description: "Of the process that answers. A secret has no value here."
    })
  )
  .annotateMerge(OpenApi.annotations({ title: "Admin: settings", description: "The settings in force." }))

export const AdminGatewayApi = HttpApiGroup.make("adminGateway")
  .add(
    reading("behaviour", "/admin/gateway/behaviour", {
      success: State,
      summary: "How the sandbox gateway behaves",
      description: "404 where GATEWAY_URL names another gateway."
    }),
    HttpApiEndpoint.put("tell", "/admin/gateway/behaviour", {
      payload: TellBody,
      success: Told,
      error: decisionProblems
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Make the sandbox gateway fail, or behave",
        description:
          "A missing field has its default: a reason alone makes it behave. 404 where GATEWAY_URL names another gateway."
      })
    )
  )
  .annotateMerge(
    OpenApi.annotations({ title: "Admin: gateway", description: "The sandbox gateway beside the service." })
  )
