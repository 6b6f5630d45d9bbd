/**
 * The services that a request carries with it. Effect copies them several times for each request. At the top of `main.ts` some hundred are in scope:
 * they took a fifth of the CPU of a request that does nothing.
 *
 * Handlers, middlewares and use cases hold the services that they use since they were built. So a request starts with settings, logging and
 * tracing alone: with what {@link layer} finds near the bottom of `main.ts`.
 */
import { Context, Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { RequestProblems } from "./RequestProblems.ts"

/** The services with which a request starts. Without {@link layer} they are all that are in scope. */
const Base = Context.Reference<Context.Context<never> | undefined>("paid-once/http/RequestContext", {
  defaultValue: () => undefined
})

/** Requests start with what is in scope here. */
export const layer: Layer.Layer<never> = Layer.effect(Base, Effect.context<never>())

/** A request adds some ten services. Up to this number they are kept apart from those of the start, which are not copied. */
const maxAdded = 32

/** Serves requests that start with the services of {@link layer}. */
export const starting = <A, E, R>(serving: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.updateContext(serving, (all: Context.Context<R>) => {
    const base = Context.get(all, Base) ?? all
    return Context.makeUnsafe<R>(base.mapUnsafe, { maxDepth: maxAdded })
  })

/** `HttpApiBuilder.group`, whose `build` holds all services that its handlers use: they get none from the group when they run. */
export const group: typeof HttpApiBuilder.group = (api, name, build) => {
  const slim = (services: Context.Context<never>) =>
    HttpApiBuilder.group(
      api,
      name,
      (handlers) => Effect.provideContext(build(handlers) as Effect.Effect<unknown>, services) as never
    )
  return Layer.effectContext(
    Effect.gen(function* () {
      const services = yield* Effect.context<never>()
      const built = Layer.buildWithMemoMap(slim(services), yield* Layer.CurrentMemoMap, yield* Effect.scope)
      return yield* Effect.updateContext(built, () => Context.pick(RequestProblems)(services as never) as never)
    })
  ) as never
}
