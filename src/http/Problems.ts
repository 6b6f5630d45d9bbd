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
    detail: shorten(detail),
    ...(errors === undefined ? {} : { errors }),
    ...members
  })

export const toResponse = (problem: Problem): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.text(toJson(problem), { status: problem.status, contentType, headers: problem.headers })

/** More than a form has fields, and more than a person reads. With {@link maxTextLength} it bounds a problem to some hundred kilobytes. */
export const maxListedErrors = 100

/** Longer than every text of ours. Only a client's own words are longer: a field's name of a megabyte, a header's value. */
const maxTextLength = 500

const shorten = (text: string): string =>
  text.length <= maxTextLength ? text : `${text.slice(0, maxTextLength).toWellFormed()}…`

/** 400 with all errors, or the first {@link maxListedErrors} and how many more there are. */
export const badRequest = (errors: ReadonlyArray<FieldError>): Problem => {
  const count = errors.length
  const listed = errors
    .slice(0, maxListedErrors)
    .map((error) => ({ ...error, pointer: shorten(error.pointer), message: shorten(error.message) }))
  return new Problem({
    status: 400,
    detail:
      count === 1
        ? `the request is not valid: ${nameOf(listed[0]!)} ${listed[0]!.message}`
        : `the request is not valid: ${count} fields are wrong${count > maxListedErrors ? `, of which ${maxListedErrors} are listed` : ""}`,
    errors: listed
  })
}

const nameOf = ({ in: part, pointer }: FieldError): string => (pointer === "" ? `the ${part}` : `${part} ${pointer}`)

/**
 * The errors of one part of the request. Two rules with the same message give one error for a field. Errors that no problem lists have no
 * pointer: those of ten thousand long names take a hundred milliseconds.
 */
export const fieldErrors = (part: FieldError["in"], issue: SchemaIssue.Issue): ReadonlyArray<FieldError> => {
  const errors: Array<FieldError> = []
  let before: { readonly message: string; readonly keys: ReadonlyArray<PropertyKey> } | undefined
  for (const { message, path = [] } of formatIssues(issue).issues) {
    const keys = path.map(segmentKey)
    // The rules of a field come one after the other.
    const isRepeated = message === before?.message && areEqual(keys, before.keys)
    before = { message, keys }
    if (isRepeated) continue
    const isListed = errors.length < maxListedErrors
    errors.push({
      in: part,
      pointer: isListed ? keys.map((key) => `/${escapePointer(String(key))}`).join("") : "",
      message
    })
  }
  return errors
}

const areEqual = (one: ReadonlyArray<PropertyKey>, other: ReadonlyArray<PropertyKey>): boolean =>
  one.length === other.length && one.every((key, index) => key === other[index])

const segmentKey = (segment: PropertyKey | { readonly key: PropertyKey }): PropertyKey =>
  typeof segment === "object" ? segment.key : segment

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
