/** The events' schemas are a contract: a change that readers of a stored version would notice needs a new version. */
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { existsSync, readFileSync } from "node:fs"
import * as Path from "node:path"
import { OrderEvent, schemaVersions } from "../../src/domain/Events.ts"

/** The part of JSON Schema that the events use. */
interface Node {
  readonly type?: string
  readonly properties?: Readonly<Record<string, Node>>
  readonly required?: ReadonlyArray<string>
  readonly items?: Node
}

/** The differences that a reader of `before` would notice in a value written by `after`, as sentences. */
const breaks = (before: Node, after: Node, path = ""): ReadonlyArray<string> => {
  if (before.type !== after.type) return [`${path || "/"} was ${before.type} and is ${after.type}`]
  const fields = Object.entries(before.properties ?? {}).flatMap(([name, field]) => {
    const now = after.properties?.[name]
    if (now === undefined) return [`${path}/${name} is gone`]
    const lapsed = before.required?.includes(name) === true && after.required?.includes(name) !== true
    return [...(lapsed ? [`${path}/${name} may be missing now`] : []), ...breaks(field, now, `${path}/${name}`)]
  })
  // A reader of the new schema would refuse the old events that are still in the topic.
  const added = (after.required ?? [])
    .filter((name) => before.required?.includes(name) !== true)
    .map((name) => `${path}/${name} is required now`)
  const items =
    before.items !== undefined && after.items !== undefined ? breaks(before.items, after.items, `${path}[]`) : []
  return [...fields, ...added, ...items]
}

const fileOf = (type: string, version: number) =>
  Path.resolve(import.meta.dirname, `../../src/domain/schemas/${type}.v${version}.json`)

const shapeOf = (data: Schema.Top): Node => Schema.toJsonSchemaDocument(data).schema

const today = OrderEvent.members.map((event) => {
  const type = event.fields._tag.schema.literal
  return { type, version: schemaVersions[type], schema: shapeOf(event.fields.data) }
})

describe("EventSchemas", () => {
  for (const { schema, type, version } of today) {
    it(`${type} version ${version} is what is checked in: a reader of that version would notice no change`, () => {
      const file = fileOf(type, version)
      assert.isTrue(existsSync(file), `${file} is missing: check in the schema of the new version`)
      const { $schema, title, ...stored } = JSON.parse(readFileSync(file, "utf8")) as Node & Record<string, unknown>
      assert.deepStrictEqual(breaks(stored, schema), [])
      assert.deepStrictEqual({ ...schema }, stored, "the change is compatible: bring the checked-in schema up to date")
      assert.isString($schema)
      assert.include(String(title), type)
    })
  }

  it("the schema of every version is still there, for readers of old events", () => {
    for (const { type, version } of today) {
      for (let old = 1; old <= version; old++) assert.isTrue(existsSync(fileOf(type, old)), `${type} version ${old}`)
    }
  })

  it("the check refuses incompatible changes", () => {
    const before: Node = {
      type: "object",
      properties: {
        a: { type: "string" },
        b: { type: "array", items: { type: "object", properties: { c: { type: "integer" } }, required: ["c"] } }
      },
      required: ["a", "b"]
    }
    const change = (properties: Node["properties"], required = ["a", "b"]): Node => ({
      ...before,
      ...(properties === undefined ? {} : { properties }),
      required
    })
    assert.deepStrictEqual(breaks(before, before), [])
    assert.deepStrictEqual(breaks(before, change({ ...before.properties, extra: { type: "string" } })), [])
    assert.deepStrictEqual(breaks(before, change({ b: before.properties!["b"]! }, ["b"])), ["/a is gone"])
    assert.deepStrictEqual(breaks(before, change({ ...before.properties, a: { type: "integer" } })), [
      "/a was string and is integer"
    ])
    assert.deepStrictEqual(
      breaks(before, change({ ...before.properties, extra: { type: "string" } }, ["a", "b", "extra"])),
      ["/extra is required now"]
    )
    assert.deepStrictEqual(breaks(before, change(before.properties, ["b"])), ["/a may be missing now"])
    assert.deepStrictEqual(
      breaks(before, change({ ...before.properties, b: { type: "array", items: { type: "object", properties: {} } } })),
      ["/b[]/c is gone"]
    )
  })
})
