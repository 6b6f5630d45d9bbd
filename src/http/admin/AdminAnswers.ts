/** From an operator's request to its service, and from the service's refusal to a problem. */
import { Effect } from "effect"
import type { HttpServerRequest, HttpServerResponse } from "effect/http"
import type { Schema } from "effect"
import type { MailNotFound, MailNotPossible } from "../../application/mail/UnsettledMail.ts"
import type { OrderNotFound } from "../../application/Orders.ts"
import type { PaymentNotFound } from "../../application/Payments.ts"
import type { SettleRefused } from "../../application/SettlePayment.ts"
import type { OrderStateConflict } from "../../domain/Order.ts"
import type * as DeadLetters from "../../operations/DeadLetters.ts"
import type { FaultsOff } from "../../operations/faults/ArmedFaults.ts"
import type { Preview } from "../../operations/reports/ReportSql.ts"
import type { FaultPointUnknown } from "../../platform/FaultInjection.ts"
import type { Operator } from "../../platform/OperatorAudit.ts"
import type { TaskNotFound, TaskNotPossible } from "../../tasks/Tasks.ts"
import * as Body from "../Body.ts"
import { Problem, toResponse } from "../Problems.ts"
import { currentOperator } from "./CurrentOperator.ts"

/** What the services refuse. */
type Refusal =
  | DeadLetters.Refusal
  | FaultPointUnknown
  | FaultsOff
  | MailNotFound
  | MailNotPossible
  | OrderNotFound
  | OrderStateConflict
  | PaymentNotFound
  | SettleRefused
  | TaskNotFound
  | TaskNotPossible

/** 404: there is no such thing. 409: its state does not allow it. */
const statusOf: Readonly<Record<Refusal["_tag"], 404 | 409>> = {
  EventUnknown: 404,
  FaultPointUnknown: 404,
  FaultsOff: 404,
  MailNotFound: 404,
  OrderNotFound: 404,
  PaymentNotFound: 404,
  TaskNotFound: 404,
  MailNotPossible: 409,
  NotPossible: 409,
  OrderStateConflict: 409,
  SettleRefused: 409,
  TaskNotPossible: 409
}

/** Answers a refusal with its problem. */
export const answering = <A, R>(
  effect: Effect.Effect<A, Refusal | Problem, R>
): Effect.Effect<A | HttpServerResponse.HttpServerResponse, never, R> =>
  Effect.catch(effect, (refusal) =>
    Effect.succeed(
      toResponse(
        refusal._tag === "Problem" ? refusal : new Problem({ status: statusOf[refusal._tag], detail: refusal.message })
      )
    )
  )

/** Carries a decision out, with what its body says, as the operator who sends it. */
export const decide = <Input extends { readonly reason: string }, I, A, E extends Refusal | Problem, R>(
  body: Schema.ConstraintCodec<Input, I>,
  act: (operator: Operator, input: Input) => Effect.Effect<A, E, R>
): Effect.Effect<A | HttpServerResponse.HttpServerResponse, never, R | HttpServerRequest.HttpServerRequest> =>
  answering(
    Effect.gen(function* () {
      const input = yield* Body.decode(body)
      return yield* act(yield* currentOperator(input.reason), input)
    })
  )

/** A bulk decision: its preview, or the decision itself. */
export const decideAll = <Filter, I, A extends object, R = never>(
  body: Schema.ConstraintCodec<{ readonly filter: Filter; readonly reason?: string; readonly preview?: boolean }, I>,
  bulk: {
    /** Refuses a filter with an unknown name. */
    readonly check?: (filter: Filter) => Effect.Effect<void, Problem, R>
    readonly preview: (filter: Filter) => Effect.Effect<Preview>
    readonly act: (filter: Filter, operator: Operator) => Effect.Effect<A>
  }
): Effect.Effect<
  ({ readonly preview: true } & Preview) | ({ readonly preview: false } & A) | HttpServerResponse.HttpServerResponse,
  never,
  R | HttpServerRequest.HttpServerRequest
> =>
  answering(
    Effect.gen(function* () {
      const { filter, preview, reason } = yield* Body.decode(body)
      if (bulk.check !== undefined) yield* bulk.check(filter)
      // The body's schema lets only a preview have no reason.
      if (preview === true || reason === undefined) {
        return { preview: true as const, ...(yield* bulk.preview(filter)) }
      }
      return { preview: false as const, ...(yield* bulk.act(filter, yield* currentOperator(reason))) }
    })
  )
