/** The groups of the installation: its settings, and the sandbox gateway beside it. */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { problems } from "../ApiParts.ts"
import { SettingInForce } from "./SettingsInForce.ts"
import { GatewayCommand, GatewayState } from "./SandboxControl.ts"
import { reading, Reason } from "./AdminParts.ts"

export const SettingsApi = HttpApiGroup.make("adminSettings")
  .add(
    reading("list", "/admin/settings", {
      success: Schema.Struct({ items: Schema.Array(SettingInForce) }).annotate({ identifier: "Settings" }),
      summary: "List the settings in force",
      description: "Of the process that answers. A secret has no value here, set or not."
    })
  )
  .annotateMerge(OpenApi.annotations({ title: "Admin: settings", description: "The settings in force." }))
