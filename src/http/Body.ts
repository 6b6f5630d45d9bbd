/**
 * Request bodies: JSON in UTF-8, bounded, and without fields that the schema does not name.
 *
 * The bytes are read here and not by HttpApi: HttpApi replaces invalid UTF-8 by U+FFFD, reads a body without a content type as JSON, and
 * answers 413 and 415 without a problem.
 */
import { Effect, Result, Schema } from "effect"
import { HttpServerRequest } from "effect/http"
import * as Turn from "../platform/Turn.ts"
import * as JsonBounds from "./JsonBounds.ts"
import { type FieldError, fieldErrors, badRequest, Problem } from "./Problems.ts"
import * as RequestBytes from "./RequestBytes.ts"

/** Seven times the largest valid order: 1,000 lines of some 150 bytes. */
export const maxBodyBytes = 1_048_576

/** The longest array of the API: an order's lines. Checked before the schema reads the elements, to name the array and not each of them. */
const maxArrayLength = 1_000

const parseOptions = { errors: "all", onExcessProperty: "error" } as const

/** The request's body of at most `maxBytes`, decoded; or the {@link Problem} to answer with. To be made once, and not for each request. */
export const decode = <A, I>(
  schema: Schema.ConstraintCodec<A, I>,
  maxBytes: number = maxBodyBytes
): Effect.Effect<A, Problem, HttpServerRequest.HttpServerRequest> => {
  const decodeBody = decoderOf(schema)
  return Effect.flatMap(read(maxBytes), (body) => Effect.fromResult(Result.mapError(decodeBody(body), badRequest)))
}

/** The errors of the body, for a request that has other errors, too. Fails with 413 and 415, which come first. */
export const errorsOf = (
  schema: Schema.ConstraintCodec<unknown, unknown>
): Effect.Effect<ReadonlyArray<FieldError>, Problem, HttpServerRequest.HttpServerRequest> =>
  read(maxBodyBytes).pipe(
    Effect.map((body) => Result.match(decoderOf(schema)(body), { onSuccess: () => [], onFailure: (errors) => errors })),
    Effect.catch((problem) => (problem.status === 400 ? Effect.succeed(problem.errors ?? []) : Effect.fail(problem)))
  )

const decoderOf = <A, I>(schema: Schema.ConstraintCodec<A, I>) => {
  const decodeBody = Schema.decodeUnknownResult(schema, parseOptions)
  return (body: unknown): Result.Result<A, ReadonlyArray<FieldError>> => {
    const { bounded, tooLong } = boundArrays(body)
    const decoded = decodeBody(bounded)
    return Result.isFailure(decoded)
      ? Result.fail([...tooLong, ...fieldErrors("body", decoded.failure.issue)])
      : tooLong.length > 0
        ? Result.fail(tooLong)
        : Result.succeed(decoded.success)
  }
}

/** Empties arrays that are too long, and returns an error for each. */
const boundArrays = (body: unknown): { readonly bounded: unknown; readonly tooLong: ReadonlyArray<FieldError> } => {
  if (Array.isArray(body)) return { bounded: body.slice(0, maxArrayLength), tooLong: [] }
  if (typeof body !== "object" || body === null) return { bounded: body, tooLong: [] }
  const long = Object.entries(body).filter(([, value]) => Array.isArray(value) && value.length > maxArrayLength)
  return long.length === 0
    ? { bounded: body, tooLong: [] }
    : {
        bounded: {
          ...body,
          ...Object.fromEntries(long.map(([key, value]) => [key, (value as Array<unknown>).slice(0, maxArrayLength)]))
        },
        tooLong: long.map(([key]) => ({
          in: "body" as const,
          pointer: `/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`,
          message: `must have at most ${maxArrayLength} elements`
        }))
      }
}

const tooLarge = (maxBytes: number) =>
  new Problem({
    status: 413,
    detail: `the body is larger than ${maxBytes} bytes`,
    errors: [{ in: "body", pointer: "", message: `must have at most ${maxBytes} bytes` }]
  })

const refuse = (message: string): Problem => badRequest([{ in: "body", pointer: "", message }])

/** A charset parameter may only name UTF-8, which JSON always is (RFC 8259, section 8.1). */
const jsonType = /^application\/json\s*(?:;\s*charset\s*=\s*"?utf-8"?\s*)?;?$/i

/** Whether the request announces a body. */
export const hasBody = (headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>): boolean =>
  headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0"

/** The 415 for a body of this type; undefined where it is JSON. */
export const unsupportedType = (type: string | undefined): Problem | undefined =>
  type !== undefined && jsonType.test(type.trim())
    ? undefined
    : new Problem({
        status: 415,
        detail: type === undefined ? "the body has no content type" : `the content type ${type} is not supported`,
        errors: [{ in: "header", pointer: "/content-type", message: "must be application/json" }],
        // RFC 9110, section 15.5.16: names the accepted type.
        headers: { accept: "application/json" }
      })

/** The body's bytes. Checks the size, announced or counted, and the content type, and not what they say. */
export const bytes = Effect.fnUntraced(function* (
  maxBytes: number
): Effect.fn.Return<Uint8Array, Problem, HttpServerRequest.HttpServerRequest> {
  const request = yield* HttpServerRequest.HttpServerRequest
  const { "content-encoding": encoding, "content-length": length, "content-type": type } = request.headers
  if (Number(length) > maxBytes) return yield* tooLarge(maxBytes)
  if (!hasBody(request.headers)) return yield* refuse("must be JSON, and is empty")
  const unsupported = unsupportedType(type)
  if (unsupported !== undefined) return yield* unsupported
  if (encoding !== undefined && encoding.toLowerCase() !== "identity") {
    return yield* new Problem({
      status: 415,
      detail: `the content encoding ${encoding} is not supported`,
      errors: [{ in: "header", pointer: "/content-encoding", message: "must not be set" }],
      headers: { "accept-encoding": "identity" }
    })
  }
  // Counts the bytes that arrive: a chunked body does not announce its length.
  const body =
    RequestBytes.arrivedBody(request) ??
    (yield* Turn.aside(RequestBytes.read(request, maxBytes)).pipe(
      Effect.mapError((unreadable) =>
        unreadable === "too large" ? tooLarge(maxBytes) : refuse("ended before its time")
      )
    ))
  if (body.length > maxBytes) return yield* tooLarge(maxBytes)
  if (body.length === 0) return yield* refuse("must be JSON, and is empty")
  return body
})

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** The text of a body. Checks the bounds of {@link JsonBounds} and the encoding. */
export const textOf = Effect.fnUntraced(function* (bytes: Uint8Array): Effect.fn.Return<string, Problem> {
  const exceeded = JsonBounds.exceededBy(bytes)
  if (exceeded !== undefined) return yield* refuse(exceeded)
  try {
    return utf8.decode(bytes)
  } catch {
    return yield* refuse("must be UTF-8, and has bytes that are not")
  }
})

/** The body's text. Checks its size first, then its content type, the bounds of {@link JsonBounds} and its encoding. */
export const text: Effect.Effect<string, Problem, HttpServerRequest.HttpServerRequest> = Effect.flatMap(
  bytes(maxBodyBytes),
  textOf
)

/** Without a pattern over the whole text: one that may begin with any number of blanks takes a square of their number. */
const saysNothing = (body: string): boolean => {
  const said = body.trim()
  return said === "" || (said.startsWith("{") && said.endsWith("}") && said.slice(1, -1).trim() === "")
}

/** Refuses a body that says something, for a request without parameters. */
export const none: Effect.Effect<void, Problem, HttpServerRequest.HttpServerRequest> = Effect.flatMap(
  HttpServerRequest.HttpServerRequest,
  ({ headers }) =>
    hasBody(headers)
      ? Effect.flatMap(text, (body) => (saysNothing(body) ? Effect.void : Effect.fail(refuse("must be empty, or {}"))))
      : Effect.void
)

const read = (maxBytes: number): Effect.Effect<unknown, Problem, HttpServerRequest.HttpServerRequest> =>
  bytes(maxBytes).pipe(
    Effect.flatMap(textOf),
    Effect.flatMap((body) => Effect.fromResult(parse(body)))
  )

const parse = (text: string): Result.Result<unknown, Problem> => {
  // RFC 8259, section 8.1: no byte order mark in JSON that is sent over a network.
  if (text.startsWith("\uFEFF")) return Result.fail(refuse("must be JSON, and begins with a byte order mark"))
  try {
    return Result.succeed(JSON.parse(text))
  } catch (error) {
    return Result.fail(refuse(`must be JSON: ${error instanceof Error ? error.message : "it can't be parsed"}`))
  }
}
