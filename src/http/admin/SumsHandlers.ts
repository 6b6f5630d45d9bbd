/** The handler of `SumsApi.ts`. */
import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Sums } from "../../application/views/Sums.ts"
import { Api } from "../Api.ts"

/** As long as a person tries something out. */
const defaultSinceSeconds = 3_600

export const layer = HttpApiBuilder.group(
  Api,
  "adminSums",
  Effect.fn(function* (handlers) {
    const sums = yield* Sums
    return handlers.handle("sums", ({ query }) => sums.of(query.sinceSeconds ?? defaultSinceSeconds))
  })
)
