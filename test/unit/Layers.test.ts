/** The house's one rule about imports: layers point inwards. */
import { assert, describe, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import * as Path from "node:path"

const src = Path.resolve(import.meta.dirname, "../../src")

/**
 * What each room may import from, besides itself. `domain` knows `effect` alone; the mechanism (`platform`, `messaging`) knows
 * neither an order nor a payment; the use cases know both; the edges know the use cases; what stands at the top knows all.
 */
const mayImport: Readonly<Record<string, ReadonlyArray<string>>> = {
  domain: [],
  platform: [],
  messaging: ["platform"],
  application: ["domain", "messaging", "platform"],
  http: ["application", "domain", "messaging", "platform"],
  // An edge as `http` is, and served by the same means; of the domain it knows how text must look, and no order.
  sandbox: ["domain", "http", "platform"],
  cli: ["application", "domain", "http", "messaging", "platform", "sandbox", "top"],
  top: ["application", "cli", "domain", "http", "messaging", "platform", "sandbox"]
}

/** Packages that a room may import; every other one may import any. */
const packagesOf: Readonly<Record<string, ReadonlyArray<string>>> = { domain: ["effect"] }

const files = readdirSync(src, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"))

const roomOf = (file: string) => (file.includes(Path.sep) ? file.slice(0, file.indexOf(Path.sep)) : "top")

const importsOf = (file: string) =>
  [
    ...readFileSync(Path.join(src, file), "utf8").matchAll(
      /(?:^|\n)\s*(?:import|export)\b[^"';]*?from\s+"([^"]+)"|\bimport\(\s*"([^"]+)"/g
    )
  ].map((match) => match[1] ?? match[2] ?? "")

/** Every import that breaks the rule, as a sentence. */
const violations = (): ReadonlyArray<string> =>
  files.flatMap((file) =>
    importsOf(file).flatMap((specifier) => {
      const room = roomOf(file)
      if (!specifier.startsWith(".")) {
        const allowed = packagesOf[room]
        const name = specifier.startsWith("@") ? specifier.split("/").slice(0, 2).join("/") : specifier.split("/")[0]!
        return allowed === undefined || allowed.includes(name) ? [] : [`src/${file} imports the package ${specifier}`]
      }
      const target = Path.relative(src, Path.resolve(src, Path.dirname(file), specifier))
      const other = roomOf(target)
      return other === room || (mayImport[room] ?? []).includes(other) ? [] : [`src/${file} imports src/${target}`]
    })
  )

describe("Layers", () => {
  it("no import points outwards", () => {
    assert.deepStrictEqual(violations(), [])
  })

  it("the check sees every file and its imports", () => {
    assert.isAbove(files.length, 30)
    const total = files.reduce((sum, file) => sum + importsOf(file).length, 0)
    assert.isAbove(total, files.length)
    assert.include(importsOf("main.ts"), "./application/Orders.ts")
  })

  it("the mechanism does not speak of orders or payments", () => {
    const named = files
      .filter((file) => ["messaging", "platform"].includes(roomOf(file)))
      .filter((file) =>
        // Comments may give an example; code may not.
        /\b(order_lines|payments?|Order(?!By)[A-Z]\w*|Payment\w*)\b/.test(
          readFileSync(Path.join(src, file), "utf8").replaceAll(/\/\*[\s\S]*?\*\/|\/\/.*/g, "")
        )
      )
    assert.deepStrictEqual(named, [])
  })
})
