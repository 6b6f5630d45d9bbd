/**
 * Requests that do not decode: one 400 that names all that is wrong with them.
 *
 * HttpApi stops at the first part of a request that fails (path, headers, query, body, in this order). When one does, all parts
 * are looked at, so that a client learns everything at once.
 */
import { Context, Effect, Result, Schema, SchemaAST } from "effect"
import { HttpRouter, HttpServerRequest } from "effect/http"
import { HttpApi, type HttpApiEndpoint, HttpApiMiddleware } from "effect/http-api"
import * as Body from "./Body.ts"
import { badRequest, type FieldError, fieldErrors, toResponse } from "./Problems.ts"

/** The API's middleware that answers what does not decode. */
export class RequestProblems extends HttpApiMiddleware.Service<RequestProblems>()("paid-once/http/RequestProblems") {
  static readonly layer = HttpApiMiddleware.layerSchemaErrorTransform(RequestProblems, (error, { endpoint }) =>
    // A response that does not encode is our mistake, and ends as a 500.
    error.kind === "Body" || error.kind === "ResponseHeaders"
      ? Effect.fail(error)
      : Effect.match(errorsOf(endpoint), {
          onFailure: toResponse,
          onSuccess: (errors) => toResponse(badRequest(errors))
        })
  )
}

const errorsOf = Effect.fnUntraced(function* (endpoint: HttpApiEndpoint.Top) {
  const request = yield* HttpServerRequest.HttpServerRequest
  const { params } = yield* HttpRouter.RouteContext
  const query = yield* HttpServerRequest.ParsedSearchParams
  const queryOptions = Context.getOrElse(endpoint.annotations, HttpApi.QueryParseOptions, () => ({
    errors: "all" as const
  }))
  const errors = [
    ...errorsIn("path", endpoint.params, params, { errors: "all" }),
    ...errorsIn("header", endpoint.headers, request.headers, { errors: "all" }),
    ...errorsIn("query", endpoint.query && Schema.toCodecArrayFromSingle(endpoint.query), query, queryOptions)
  ]
  for (const { schemas } of endpoint.payload.values()) {
    errors.push(...(yield* Body.errorsOf(withoutServices(schemas[0]))))
  }
  return errors
})

/**
 * An endpoint keeps its schemas as `Schema.Top`, which has forgotten that none of ours needs a service to decode. Were one to need
 * it, its endpoint's own handler would not have compiled.
 */
const withoutServices = (schema: Schema.Top) => schema as unknown as Schema.Codec<unknown>

const errorsIn = (
  place: FieldError["in"],
  schema: Schema.Top | undefined,
  input: unknown,
  options: SchemaAST.ParseOptions
): ReadonlyArray<FieldError> => {
  if (schema === undefined) return []
  const decoded = Schema.decodeUnknownResult(withoutServices(schema), options)(input)
  return Result.isSuccess(decoded) ? [] : fieldErrors(place, decoded.failure.issue)
}
