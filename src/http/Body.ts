/**
 * Request bodies: JSON in UTF-8, bounded, and without fields that the schema does not name.
 *
 * The bytes are read here and not by HttpApi: HttpApi replaces invalid UTF-8 by U+FFFD, reads a body without a content type as JSON, and
 * answers 413 and 415 without a problem.
 */
import { ByteSize, Effect, Result, Schema } from "effect"
import { HttpIncomingMessage, HttpServerRequest } from "effect/http"
import { type FieldError, fieldErrors, badRequest, Problem } from "./Problems.ts"

/** Seven times the largest valid order: 1,000 lines of some 150 bytes. */
export const maxBodyBytes = 1_048_576

/**
 * The longest array of the API: an order's lines. Checked before the schema reads the elements. Otherwise a megabyte of `{},` would cost a
 * million issues and seconds of work.
 */
const maxArrayLength = 1_000

const parseOptions = { errors: "all", onExcessProperty: "error" } as const

/** The request's body, decoded; or the {@link Problem} to answer with. */
export const decode = <A, I>(
  schema: Schema.ConstraintCodec<A, I>
): Effect.Effect<A, Problem, HttpServerRequest.HttpServerRequest> => {
  const decodeBody = decoderOf(schema)
  return Effect.flatMap(read, (body) => Effect.fromResult(Result.mapError(decodeBody(body), badRequest)))
}

/** The errors of the body, for a request that has other errors, too. Fails with 413 and 415, which come first. */
export const errorsOf = (
  schema: Schema.ConstraintCodec<unknown, unknown>
): Effect.Effect<ReadonlyArray<FieldError>, Problem, HttpServerRequest.HttpServerRequest> =>
  read.pipe(
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

const tooLarge = new Problem({
  status: 413,
  detail: `the body is larger than ${maxBodyBytes} bytes`,
  errors: [{ in: "body", pointer: "", message: `must have at most ${maxBodyBytes} bytes` }]
})

const refuse = (message: string): Problem => badRequest([{ in: "body", pointer: "", message }])

/** A charset parameter may only name UTF-8, which JSON always is (RFC 8259, section 8.1). */
const jsonType = /^application\/json\s*(?:;\s*charset\s*=\s*"?utf-8"?\s*)?;?$/i

/** The body's text. Checks its size first, then its content type and its encoding. */
export const text: Effect.Effect<string, Problem, HttpServerRequest.HttpServerRequest> = Effect.gen(function* () {
  const request = yield* HttpServerRequest.HttpServerRequest
  const { "content-encoding": encoding, "content-length": length, "content-type": type } = request.headers
  if (Number(length) > maxBodyBytes) return yield* tooLarge
  if (length === "0" || (length === undefined && request.headers["transfer-encoding"] === undefined)) {
    return yield* refuse("must be JSON, and is empty")
  }
  if (type === undefined || !jsonType.test(type.trim())) {
    return yield* new Problem({
      status: 415,
      detail: type === undefined ? "the body has no content type" : `the content type ${type} is not supported`,
      errors: [{ in: "header", pointer: "/content-type", message: "must be application/json" }],
      // RFC 9110, section 15.5.16: names the accepted type.
      headers: { accept: "application/json" }
    })
  }
  if (encoding !== undefined && encoding.toLowerCase() !== "identity") {
    return yield* new Problem({
      status: 415,
      detail: `the content encoding ${encoding} is not supported`,
      errors: [{ in: "header", pointer: "/content-encoding", message: "must not be set" }],
      headers: { "accept-encoding": "identity" }
    })
  }
  const bytes = yield* request.arrayBuffer.pipe(
    // Counts the bytes that arrive: a chunked body does not announce its length.
    Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(maxBodyBytes)),
    Effect.mapError(({ reason }) =>
      reason._tag === "RequestParseError" && reason.reason === "BodyTooLarge"
        ? tooLarge
        : refuse("ended before its time")
    )
  )
  if (bytes.byteLength === 0) return yield* refuse("must be JSON, and is empty")
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return yield* refuse("must be UTF-8, and has bytes that are not")
  }
})

const read: Effect.Effect<unknown, Problem, HttpServerRequest.HttpServerRequest> = Effect.flatMap(text, (body) =>
  Effect.fromResult(parse(body))
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
