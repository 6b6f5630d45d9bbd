/**
 * Completes the generated OpenAPI document: one component for each schema, a description for each status, the answers that every endpoint
 * may give, and who may use it.
 */
import { STATUS_CODES } from "node:http"
import * as Access from "./access/Access.ts"
import * as SessionCookie from "./access/SessionCookie.ts"
import { contentType as problemType } from "./Problems.ts"

interface Spec {
  readonly paths: Record<string, Record<string, Operation>>
  readonly components: { schemas: Record<string, unknown>; securitySchemes: Record<string, unknown> }
}

interface Response {
  description: string
  content?: Record<string, unknown>
  headers?: Record<string, unknown>
}

interface Operation {
  description?: string
  security?: ReadonlyArray<Record<string, ReadonlyArray<string>>>
  readonly responses: Record<string, Response>
  readonly parameters?: ReadonlyArray<{
    readonly name: string
    readonly schema: Record<string, unknown>
  }>
}

/** A schema with another status becomes another component (`Problem_7`). Equal components are folded into the first. */
const foldComponents = (spec: Spec): Spec => {
  const { schemas } = spec.components
  const isCopy = (name: string) => {
    const original = name.replace(/_\d+$/, "")
    return original !== name && JSON.stringify(schemas[original]) === JSON.stringify(schemas[name])
  }
  const copies = new Set(Object.keys(schemas).filter(isCopy))
  const folded = JSON.parse(JSON.stringify(spec), (key, value: unknown) =>
    key === "$ref" && typeof value === "string" && copies.has(value.slice(value.lastIndexOf("/") + 1))
      ? value.replace(/_\d+$/, "")
      : value
  ) as Spec
  for (const name of copies) delete folded.components.schemas[name]
  return folded
}

const problem = (): Response => ({
  description: "",
  content: { [problemType]: { schema: { $ref: "#/components/schemas/Problem" } } }
})

/** RFC 9110, section 10.2.3, in its form of seconds. */
const retryAfter = (required: boolean) => ({
  description: "Seconds after which asking again is worth it",
  schema: { type: "integer", minimum: 0 },
  required
})

/**
 * The problems of any request, whatever its endpoint. A host, an origin, a form, a key or a rate is refused. HTTP is broken, slow or too
 * long. We fail. 503 and 429 are also the answers to a request above the bounds of Admission.ts.
 */
const commonStatuses = (path: string, method: string): ReadonlyArray<number> => [
  400,
  403,
  408,
  417,
  421,
  431,
  500,
  503,
  ...(Access.scopeOf(method.toUpperCase(), path) === undefined ? [] : [401]),
  ...(method === "post" || method === "put" ? [415] : []),
  ...(path.startsWith("/health/") ? [] : [429])
]

/** The headers of answers with this status, besides those that the endpoint declares. */
const headersOf = (status: string, path: string, operation: Operation): Record<string, unknown> => {
  switch (status) {
    case "401":
      return operation.security?.length === 0
        ? {}
        : { "www-authenticate": { schema: { type: "string", enum: ["Bearer"] }, required: true } }
    case "202":
    case "429":
    case "503":
      return { "retry-after": retryAfter(true) }
    case "409":
      // Only where a request with the same key is still being processed.
      return path.endsWith("/pay") ? { "retry-after": retryAfter(false) } : {}
    default:
      return {}
  }
}

/** For `OpenApi.Transform`. `parametersOf` a path completes the schemas of its parameters, by name: the generated ones show them as text. */
export const improve =
  (parametersOf: (path: string) => Readonly<Record<string, Record<string, unknown>>>) =>
  (spec: Record<string, unknown>): Record<string, unknown> => {
    // Effect's transform is untyped; `Spec` names the parts of the document that are changed here.
    const folded = foldComponents(spec as unknown as Spec)
    folded.components.securitySchemes["apiKey"] = {
      type: "http",
      scheme: "bearer",
      description:
        "A key of API_KEYS, which names a program, or ADMIN_TOKEN. Where no keys are configured, none is needed outside of /admin."
    }
    folded.components.securitySchemes["session"] = {
      type: "apiKey",
      in: "cookie",
      name: SessionCookie.baseName,
      description:
        "From `POST /admin/session`. Where the Host has a port, the cookie's name ends with `_` and the port. A request that is no GET needs an Origin, too."
    }
    for (const [path, methods] of Object.entries(folded.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        const scope = Access.scopeOf(method.toUpperCase(), path)
        operation.security =
          scope === undefined ? [] : [{ apiKey: [] }, { session: [] }, ...(Access.isAdmin(path) ? [] : [{}])]
        const readers = scope === "operator" ? "operators" : scope === "viewer" ? "operators and viewers" : undefined
        if (readers !== undefined) operation.description = `${operation.description ?? ""} For ${readers}.`.trim()
        for (const status of commonStatuses(path, method)) {
          const response = (operation.responses[status] ??= problem())
          // Health answers 503 with its report, too.
          response.content = { ...problem().content, ...response.content }
        }
        for (const [status, response] of Object.entries(operation.responses)) {
          if (Number(status) >= 400) response.description = STATUS_CODES[status] ?? status
          const headers = headersOf(status, path, operation)
          if (Object.keys(headers).length > 0) response.headers = { ...response.headers, ...headers }
        }
        for (const parameter of operation.parameters ?? []) {
          Object.assign(parameter.schema, parametersOf(path)[parameter.name])
        }
      }
    }
    return folded as unknown as Record<string, unknown>
  }
