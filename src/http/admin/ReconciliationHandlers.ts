/** The handlers of `ReconciliationApi.ts`. */
import { Effect } from "effect"
import { HttpServerRequest } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { Reconciliation } from "../../application/reconciliation/Reconciliation.ts"
import * as Turn from "../../platform/Turn.ts"
import { Api } from "../Api.ts"
import * as Body from "../Body.ts"
import { answering } from "./AdminAnswers.ts"
import { currentActor } from "./CurrentOperator.ts"
import { ReconcileBody } from "./ReconciliationApi.ts"

export const layer = HttpApiBuilder.group(
  Api,
  "adminReconciliation",
  Effect.fn(function* (handlers) {
    const { last, run } = yield* Reconciliation
    return handlers
      .handle("last", () => Effect.map(last, (report) => ({ last: report ?? null })))
      .handleRaw("run", () =>
        answering(
          Effect.gen(function* () {
            const { headers } = yield* HttpServerRequest.HttpServerRequest
            const { reason, repair } = Body.hasBody(headers) ? yield* Body.decode(ReconcileBody) : {}
            const actor = yield* currentActor
            // It takes as long as there are orders: other requests don't wait for its turn.
            return yield* Turn.aside(
              run({ actor, repair: repair === true && reason !== undefined ? { reason } : undefined })
            )
          })
        )
      )
  })
)
