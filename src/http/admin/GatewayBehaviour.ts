/**
 * How the sandbox gateway behaves, and the way to change that from here. The sandbox itself is another company's server, as it were: only where
 * it runs beside the service can an operator reach it through /admin.
 */
import { Context, Effect, Option, Schema } from "effect"
import type { Operator } from "../../platform/OperatorAudit.ts"

/**
 * - `normal`: as the payment method says.
 * - `slow`: does as requested, and answers `delayMillis` late.
 * - `down`: 503, and nothing is done.
 * - `error`, `error-after`: 500, before or after the charge or refund is made.
 * - `timeout`, `timeout-after`: no answer, before or after it is made.
 */
export const Mode = Schema.Literals(["normal", "slow", "down", "error", "error-after", "timeout", "timeout-after"])
export type Mode = typeof Mode.Type

/** `first`: reported before the charge is answered. */
export const WebhookMode = Schema.Literals(["once", "twice", "first", "never"])
export type WebhookMode = typeof WebhookMode.Type

const Millis = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 86_400_000 }))

/** What to show. A missing field has its default. The fault ends after `times` requests or `durationMillis`, or never. */
export const Command = Schema.Struct({
  mode: Schema.optionalKey(Mode),
  delayMillis: Schema.optionalKey(Millis),
  times: Schema.optionalKey(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 1_000_000 }))),
  durationMillis: Schema.optionalKey(Millis),
  webhooks: Schema.optionalKey(WebhookMode)
})
export type Command = typeof Command.Type

export const State = Schema.Struct({
  mode: Mode,
  delayMillis: Schema.Int,
  /** Requests that still get the fault; null for all. */
  timesLeft: Schema.NullOr(Schema.Int),
  /** When the fault ends, in Unix milliseconds of this machine; null for never. */
  untilMillis: Schema.NullOr(Schema.Int),
  webhooks: WebhookMode
}).annotate({ identifier: "GatewayBehaviour" })
export type State = typeof State.Type

/** The behaviour after a command. `changed` is false where it was so before. */
export const Told = Schema.Struct({ ...State.fields, changed: Schema.Boolean }).annotate({
  identifier: "GatewayBehaviourTold"
})
export type Told = typeof Told.Type

/** The sandbox beside the service; none where GATEWAY_URL names a gateway. */
export const GatewayBehaviour = Context.Reference<
  Option.Option<{
    readonly get: Effect.Effect<State>
    /** Audited. */
    readonly tell: (command: Command, operator: Operator) => Effect.Effect<Told>
  }>
>("paid-once/http/admin/GatewayBehaviour", { defaultValue: () => Option.none() })
