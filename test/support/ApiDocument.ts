/**
 * Holds answers against an OpenAPI 3.1 document. ajv decides whether a body or a header fits its schema. It shares nothing with the codecs
 * that write the answers and the document.
 */
import formats from "ajv-formats"
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js"

/** A JSON Schema, as the document has it. */
export type JsonSchema = Readonly<Record<string, unknown>>

export interface Parameter {
  readonly name: string
  readonly in: "path" | "query" | "header"
  readonly required?: boolean
  readonly schema: JsonSchema
}

type Content = Readonly<Record<string, { readonly schema: JsonSchema }>>

interface Response {
  readonly content?: Content
  readonly headers?: Readonly<Record<string, { readonly required?: boolean; readonly schema: JsonSchema }>>
}

interface Operation {
  readonly parameters?: ReadonlyArray<Parameter>
  readonly requestBody?: { readonly content: Content }
  readonly responses: Readonly<Record<string, Response>>
}

/** The parts of a document that are read here. */
export interface OpenApiDocument {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: { readonly schemas: Readonly<Record<string, JsonSchema>> }
}

/** An answer as it came over the wire. `target` is the path and query that were asked for. */
export interface WireAnswer {
  readonly method: string
  readonly target: string
  readonly status: number
  readonly header: (name: string) => string | undefined
  readonly text: string
}

/** An endpoint of the document. */
export interface Endpoint {
  readonly method: string
  /** The template, for example `/orders/{id}`. */
  readonly path: string
  readonly parameters: ReadonlyArray<Parameter>
  /** The schema of its JSON body; undefined where it takes none. */
  readonly body: JsonSchema | undefined
}

export interface ApiDocument {
  readonly endpoints: ReadonlyArray<Endpoint>
  /** A schema of the document as one that needs nothing else: references point into its own `$defs`. */
  readonly standalone: (schema: JsonSchema) => JsonSchema
  /** What is wrong with the answer, as sentences; empty where nothing is. */
  readonly problemsOf: (answer: WireAnswer) => ReadonlyArray<string>
}

/** Headers that tell a client what to do next. One that is sent without being documented is found by chance only. */
const guidingHeaders = ["location", "retry-after"]

const problemType = "application/problem+json"

const mediaType = (value: string | undefined) => value?.split(";", 1)[0]!.trim().toLowerCase()

/** Reads the document. Throws where ajv, in strict mode, refuses one of its schemas. */
export const make = (document: OpenApiDocument): ApiDocument => {
  const ajv = new Ajv2020({ allErrors: true, strict: true, allowUnionTypes: true })
  formats.default(ajv)
  const rewritten = (schema: unknown) =>
    JSON.parse(JSON.stringify(schema).replaceAll('"#/components/schemas/', '"#/$defs/')) as JsonSchema
  const definitions = rewritten(document.components.schemas)
  const standalone = (schema: JsonSchema): JsonSchema => ({ ...rewritten(schema), $defs: definitions })
  const compiled = new Map<JsonSchema, ValidateFunction>()
  const check = (schema: JsonSchema, value: unknown): ReadonlyArray<string> => {
    const validate = compiled.get(schema) ?? ajv.compile(standalone(schema))
    compiled.set(schema, validate)
    return validate(value)
      ? []
      : (validate.errors ?? []).map(
          ({ instancePath, message, params }) =>
            `${instancePath === "" ? "it" : instancePath} ${message} ${JSON.stringify(params)}`
        )
  }
  // The path with the fewest parameters first: it is the one that is meant.
  const templates = Object.keys(document.paths)
    .map((path) => ({ path, segments: path.split("/") }))
    .toSorted((a, b) => a.path.split("{").length - b.path.split("{").length)
  // Every schema is compiled now: a document that ajv refuses fails here, and not at the first answer that needs it.
  for (const operation of Object.values(document.paths).flatMap((item) => Object.values(item))) {
    for (const { content, headers } of Object.values(operation.responses)) {
      for (const { schema } of [...Object.values(content ?? {}), ...Object.values(headers ?? {})]) check(schema, null)
    }
  }

  const pathOf = (target: string) => {
    const segments = target.split(/[?#]/, 1)[0]!.split("/")
    return templates.find(
      (template) =>
        template.segments.length === segments.length &&
        template.segments.every((segment, index) => segment.startsWith("{") || segment === segments[index])
    )?.path
  }

  const bodyProblems = (schema: JsonSchema, answer: WireAnswer): ReadonlyArray<string> => {
    let value: unknown
    try {
      value = JSON.parse(answer.text)
    } catch {
      return [`the body is no JSON: ${answer.text.slice(0, 100)}`]
    }
    const status = (value as { readonly status?: unknown } | null)?.status
    return [
      ...check(schema, value).map((error) => `the body does not fit its schema: ${error}`),
      ...(mediaType(answer.header("content-type")) === problemType && status !== answer.status
        ? [`the problem has the status ${String(status)}`]
        : [])
    ]
  }

  /** An error that no endpoint declares must be a problem. */
  const problemProblems = (answer: WireAnswer): ReadonlyArray<string> => {
    const type = mediaType(answer.header("content-type"))
    if (type !== problemType) return [`the error is no problem: its content type is ${type ?? "missing"}`]
    const schema = document.components.schemas["Problem"]
    if (schema === undefined) return ["the document has no schema Problem"]
    return answer.method === "HEAD" ? [] : bodyProblems(schema, answer)
  }

  const declaredProblems = (response: Response, answer: WireAnswer): ReadonlyArray<string> => {
    const type = mediaType(answer.header("content-type"))
    const content = Object.entries(response.content ?? {}).find(([name]) => mediaType(name) === type)
    const headers = response.headers ?? {}
    return [
      ...(response.content === undefined || content !== undefined
        ? []
        : [`the content type ${type ?? "(none)"} is not declared for it`]),
      ...(response.content === undefined && answer.text !== "" ? ["it has a body, and none is declared"] : []),
      ...(content === undefined || answer.method === "HEAD" ? [] : bodyProblems(content[1].schema, answer)),
      ...Object.entries(headers).flatMap(([name, { required, schema }]) => {
        const value = answer.header(name)
        if (value === undefined) return required === true ? [`the header ${name} is missing`] : []
        // A header is text: one that is declared as a number is compared as one.
        const typed = schema["type"] === "integer" || schema["type"] === "number" ? Number(value) : value
        return check(schema, typed).map((error) => `the header ${name}: ${error}`)
      }),
      ...guidingHeaders
        .filter(
          (name) => answer.header(name) !== undefined && !Object.keys(headers).some((it) => it.toLowerCase() === name)
        )
        .map((name) => `the header ${name} is not declared for it`)
    ]
  }

  const problemsOf = (answer: WireAnswer): ReadonlyArray<string> => {
    const { method, status, target } = answer
    const path = pathOf(target)
    const item = path === undefined ? undefined : document.paths[path]
    const operation = item?.[(method === "HEAD" ? "GET" : method).toLowerCase()]
    const problems = (): ReadonlyArray<string> => {
      const response = operation?.responses[String(status)]
      if (response !== undefined) return declaredProblems(response, answer)
      if (operation !== undefined) return ["the status is not declared"]
      if (status >= 400) return problemProblems(answer)
      return item === undefined ? [] : [`it is answered, and the document has no ${method} of ${path}`]
    }
    return problems().map((problem) => `${method} ${path ?? target.slice(0, 100)} answered ${status}: ${problem}`)
  }

  return {
    endpoints: Object.entries(document.paths).flatMap(([path, item]) =>
      Object.entries(item).map(([method, operation]) => ({
        method: method.toUpperCase(),
        path,
        parameters: operation.parameters ?? [],
        body: operation.requestBody?.content["application/json"]?.schema
      }))
    ),
    standalone,
    problemsOf
  }
}
