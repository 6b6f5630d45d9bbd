/** The settings that the process runs with, for operators. */
import { Context, Schema } from "effect"

/** A variable. The value of a secret is never here. */
export const Setting = Schema.Struct({
  variable: Schema.String,
  /** What it is for, why its default is what it is, and what is allowed. */
  description: Schema.String,
  /** As the environment has it, or the default. Null for a secret, and where a variable without a default is not set. */
  value: Schema.NullOr(Schema.String),
  isDefault: Schema.Boolean,
  isSecret: Schema.Boolean
}).annotate({ identifier: "Setting" })
export type Setting = typeof Setting.Type

export const SettingsInForce = Context.Reference<ReadonlyArray<Setting>>("paid-once/http/admin/SettingsInForce", {
  defaultValue: () => []
})
