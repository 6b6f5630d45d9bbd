/** The handler of {@link JourneyApi}. */
import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Journey } from "../../application/views/Journey.ts"
import { Api } from "../Api.ts"
import { Problem, toResponse } from "../Problems.ts"

export const layer = HttpApiBuilder.group(
  Api,
  "journeys",
  Effect.fn(function* (handlers) {
    const journey = yield* Journey
    return handlers.handle("get", ({ params, query }) =>
      Effect.catchTag(journey.of(params.id, query.cursor), "OrderNotFound", (error) =>
        Effect.succeed(toResponse(new Problem({ status: 404, detail: error.message })))
      )
    )
  })
)
