/**
 * Every failure as RFC 9457 `application/problem+json`.
 *
 * A refusal of bad input names all wrong fields at once: the part of the request, a JSON Pointer (RFC 6901), and a sentence for a person.
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

/** A failure that is answered by {@link toResponse}. */
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

/** The problem's JSON. `type` is about:blank: the status gives the kind of problem, and `detail` the rest. */
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
 * Enough for every field of the largest order (1,000 lines of 3 fields). It bounds the answer to half a megabyte, however many unknown fields the
 * body has.
 */
const maxListedErrors = 4_000

/** 400 with all errors. */
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

const nameOf = ({ in: part, pointer }: FieldError): string => (pointer === "" ? `the ${part}` : `${part} ${pointer}`)

/** The errors of one part of the request. Two rules with the same message give one error for a field. */
export const fieldErrors = (part: FieldError["in"], issue: SchemaIssue.Issue): ReadonlyArray<FieldError> => {
  const unique = new Map<string, FieldError>()
  for (const { message, path } of formatIssues(issue).issues) {
    const pointer = (path ?? []).map((segment) => `/${escapePointer(segmentKey(segment))}`).join("")
    unique.set(`${pointer} ${message}`, { in: part, pointer, message })
  }
  return [...unique.values()]
}

const segmentKey = (segment: PropertyKey | { readonly key: PropertyKey }): string =>
  String(typeof segment === "object" ? segment.key : segment)

const escapePointer = (key: string): string => key.replaceAll("~", "~0").replaceAll("/", "~1")

/**
 * The messages: a schema's own `message` first, else a sentence for the kind of error. The value is never printed: it may be secret, a megabyte
 * long, or nested deeper than the stack allows.
 */
const formatIssues = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => {
    switch (issue._tag) {
      case "MissingKey":
        return "is required"
      case "UnexpectedKey":
        return "is not known here"
      case "InvalidType":
        // The message of the last check describes the whole value, so it fits a value of another type, too.
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
