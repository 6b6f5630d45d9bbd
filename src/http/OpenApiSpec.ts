/** Completes the generated OpenAPI document: one component for each schema, and a description for each status. */
import { STATUS_CODES } from "node:http"

interface Spec {
  readonly paths: Record<string, Record<string, Operation>>
  readonly components: { schemas: Record<string, unknown> }
}

interface Operation {
  readonly responses?: Record<string, { description: string }>
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

/** For `OpenApi.Transform`. `parameters` completes the schemas of parameters, by name: the generated ones show them as text. */
export const improve =
  (parameters: Readonly<Record<string, Record<string, unknown>>>) =>
  (spec: Record<string, unknown>): Record<string, unknown> => {
    // Effect's transform is untyped; `Spec` names the parts of the document that are changed here.
    const folded = foldComponents(spec as unknown as Spec)
    for (const operation of Object.values(folded.paths).flatMap((path) => Object.values(path))) {
      for (const [status, response] of Object.entries(operation.responses ?? {})) {
        if (Number(status) >= 400) response.description = STATUS_CODES[status] ?? status
      }
      for (const parameter of operation.parameters ?? []) {
        Object.assign(parameter.schema, parameters[parameter.name])
      }
    }
    return folded as unknown as Record<string, unknown>
  }
