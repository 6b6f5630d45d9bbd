/**
 * Everything that is not a success, as RFC 9457 `application/problem+json`.
 *
 * Bad input names every wrong field at once: where it stood, a JSON Pointer (RFC 6901) to it, and a sentence a person can act on.
 */
import { Data, SchemaAST, SchemaIssue } from "effect"
import { HttpServerResponse } from "effect/http"
import { STATUS_CODES } from "node:http"

/** One wrong field. `pointer` is `""` for a body as a whole, `/lines/0/quantity` inside it, `/id` for a parameter or header. */
export interface FieldError {
  readonly in: "body" | "path" | "query" | "header"
  readonly pointer: string
  readonly message: string
}

/** An answer that is not a success, until it is written by {@link toResponse}. */
export class Problem extends Data.TaggedError("Problem")<{
  readonly status: number
  readonly detail: string
  readonly errors?: ReadonlyArray<FieldError>
  readonly headers?: Readonly<Record<string, string>>
  /** Further members of the body, for example the trace to ask an operator about. */
  readonly members?: Readonly<Record<string, string>>
}> {
  override get message(): string {
    return this.detail
  }
}

/** The media type of every problem. */
export const contentType = "application/problem+json"

/** The problem's JSON, as it is sent. `type` is about:blank: the status says what kind of problem it is, `detail` the rest. */
export const toJson = ({ detail, errors, members, status }: Problem): string =>
  JSON.stringify({
    type: "about:blank",
    title: STATUS_CODES[status] ?? "Error",
    status,
    detail,
    ...(errors === undefined ? {} : { errors }),
    ...members
  })

export const toResponse = (problem: Problem): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.text(toJson(problem), { status: problem.status, contentType, headers: problem.headers })

/**
 * Every field of a full order can be named (1,000 lines of 3 fields), and an answer stays below half a megabyte however many
 * unknown fields a body of one megabyte holds.
 */
const maxListedErrors = 4_000

/** 400 with all that is wrong. */
export const badRequest = (errors: ReadonlyArray<FieldError>): Problem => {
  const count = errors.length
  return new Problem({
    status: 400,
    detail:
      count === 1
        ? `the request is not valid: ${nameOf(errors[0]!)} ${errors[0]!.message}`
        : `the request is not valid: ${count} fields are wrong`,
    errors: errors.slice(0, maxListedErrors)
  })
}

const nameOf = ({ in: place, pointer }: FieldError): string => (pointer === "" ? `the ${place}` : `${place} ${pointer}`)

/** The issues of one part of the request, by JSON Pointer. A field that breaks two rules of one sentence is named once. */
export const fieldErrors = (place: FieldError["in"], issue: SchemaIssue.Issue): ReadonlyArray<FieldError> => {
  const unique = new Map<string, FieldError>()
  for (const { message, path } of formatIssues(issue).issues) {
    const pointer = (path ?? []).map((segment) => `/${escapePointer(keyOf(segment))}`).join("")
    unique.set(`${pointer} ${message}`, { in: place, pointer, message })
  }
  return [...unique.values()]
}

const keyOf = (segment: PropertyKey | { readonly key: PropertyKey }): string =>
  String(typeof segment === "object" ? segment.key : segment)

const escapePointer = (key: string): string => key.replaceAll("~", "~0").replaceAll("/", "~1")

/**
 * Effect's messages with our words: a schema's own `message` first, then a sentence by the kind of mistake. The value itself is
 * never printed: it may be secret, a megabyte long, or nested deeper than a printer's stack.
 */
const formatIssues = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => {
    switch (issue._tag) {
      case "MissingKey":
        return "is required"
      case "UnexpectedKey":
        return "is not known here"
      case "InvalidType":
        // The message of the last check says what is wanted as a whole, so it fits a value of another type as well.
        return messageOf(SchemaAST.resolve(issue.ast)) ?? `must be ${nameOfType(issue.ast)}`
      default:
        return SchemaIssue.defaultLeafHook(issue)
    }
  },
  checkHook: (issue) => {
    const message = SchemaIssue.defaultCheckHook(issue)
    if (message !== undefined || issue.issue._tag !== "InvalidValue") return message
    const expected = issue.filter.annotations?.["expected"]
    return typeof expected === "string" ? `must be ${expected}` : "is not valid"
  }
})

const messageOf = (annotations: { readonly message?: unknown } | undefined): string | undefined =>
  typeof annotations?.message === "string" ? annotations.message : undefined

const nameOfType = (ast: SchemaAST.AST): string => {
  switch (ast._tag) {
    case "String":
      return "a string"
    case "Number":
      return "a number"
    case "Boolean":
      return "true or false"
    case "Arrays":
      return "an array"
    case "Objects":
      return "an object"
    default:
      return "of another type"
  }
}
