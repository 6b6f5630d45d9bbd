/**
 * Answers a request that can't be decoded with one 400 that names all errors.
 *
 * HttpApi stops at the first part of a request that fails: path, headers, query, body, in this order. After such a failure all parts are decoded
 * again, to collect all errors.
 */
import { Context, Effect, Result, Schema, SchemaAST } from "effect"
import { HttpRouter, HttpServerRequest } from "effect/http"
import { HttpApi, type HttpApiEndpoint, HttpApiMiddleware } from "effect/http-api"
import * as Body from "./Body.ts"
import { badRequest, type FieldError, fieldErrors, toResponse } from "./Problems.ts"

/** The API's middleware for requests that can't be decoded. */
export class RequestProblems extends HttpApiMiddleware.Service<RequestProblems>()("paid-once/http/RequestProblems") {
  static readonly layer = HttpApiMiddleware.layerSchemaErrorTransform(RequestProblems, (error, { endpoint }) =>
    // A response that can't be encoded is a mistake of the service, and is answered 500.
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
 * An endpoint has its schemas as `Schema.Top`, whose type allows services. No schema of the API needs one: its handler would not compile.
 */
const withoutServices = (schema: Schema.Top) => schema as unknown as Schema.Codec<unknown>

const errorsIn = (
  part: FieldError["in"],
  schema: Schema.Top | undefined,
  input: unknown,
  options: SchemaAST.ParseOptions
): ReadonlyArray<FieldError> => {
  if (schema === undefined) return []
  const decoded = Schema.decodeUnknownResult(withoutServices(schema), options)(input)
  return Result.isSuccess(decoded) ? [] : fieldErrors(part, decoded.failure.issue)
}
