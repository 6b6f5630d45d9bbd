/** Groups of handlers whose requests don't carry the services of the whole program. */
import { Context, Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { RequestProblems } from "./RequestProblems.ts"

/**
 * `HttpApiBuilder.group`, for handlers that ask for all their services when they are built.
 *
 * HttpApi gives a group's handlers the services that were in scope when the group was built: for each request it copies all of them, twice. In
 * this service they are some hundred and fifty. So the group is built without any, and `build` alone gets them.
 */
export const group: typeof HttpApiBuilder.group = (api, name, build) =>
  Layer.effectContext(
    Effect.gen(function* () {
      const services = yield* Effect.context()
      const memoMap = yield* Layer.CurrentMemoMap
      const scope = yield* Effect.scope
      const slim = HttpApiBuilder.group(
        api,
        name,
        (handlers) => Effect.provideContext(build(handlers) as Effect.Effect<never>, services as never) as never
      )
      return yield* Effect.updateContext(
        Layer.buildWithMemoMap(slim, memoMap, scope),
        () => Context.pick(RequestProblems)(services as never) as never
      )
    })
  ) as never
