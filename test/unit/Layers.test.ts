/** The rules about imports: layers point inwards, there is no circle, and the rule never imports its armour. */
import { assert, describe, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import * as Path from "node:path"

const src = Path.resolve(import.meta.dirname, "../../src")

const mechanism = ["brokers", "guards", "inbox", "operations", "outbox", "plain", "platform", "postgres", "tasks"]

/**
 * The rooms that each room may import, besides itself. `domain` imports `effect` alone. The mechanism imports nothing of orders and
 * payments. The use cases import both, the edges import the use cases, and main imports everything.
 */
const mayImport: Readonly<Record<string, ReadonlyArray<string>>> = {
  domain: [],
  platform: [],
  postgres: ["platform"],
  brokers: ["platform"],
  outbox: ["brokers", "platform"],
  inbox: ["brokers", "platform"],
  tasks: ["platform"],
  guards: ["brokers", "outbox", "platform"],
  operations: ["brokers", "guards", "inbox", "outbox", "platform", "postgres", "tasks"],
  // Composes the plain services of the other rooms, for a service that installs the package.
  plain: ["brokers", "inbox", "outbox", "platform", "postgres", "tasks"],
  application: ["brokers", "domain", "inbox", "operations", "outbox", "platform", "tasks"],
  http: ["application", "domain", ...mechanism],
  // An edge like `http`, and served by the same means. Of the domain it uses the rules about text, and no order.
  sandbox: ["domain", "http", "platform", "postgres"],
  // Browser code. It imports the types of the API's answers, and nothing that runs.
  console: ["application", "http", "operations"],
  cli: ["application", "domain", "http", "sandbox", "main", ...mechanism],
  main: ["application", "cli", "domain", "http", "sandbox", ...mechanism]
}

/** Rooms inside a room that only main composes: the fast layers, the embedded servers, a client's repairs. By room: what they may import. */
const armour: Readonly<Record<string, ReadonlyArray<string>>> = {
  // A fast layer replaces a plain service, and so imports its room.
  "postgres/fast": ["brokers", "inbox", "outbox", "platform", "postgres"],
  "postgres/embedded": ["platform", "postgres"],
  "postgres/tls": ["platform"],
  "brokers/embedded": ["brokers", "platform"],
  "brokers/kafkajs": ["brokers", "platform"]
}

/** Packages that a room may import; a room that is not listed may import any. */
const packagesOf: Readonly<Record<string, ReadonlyArray<string>>> = {
  domain: ["effect"],
  // What the service gives to the browser.
  console: ["htm", "preact", "uplot"]
}

const files = readdirSync(src, { recursive: true, encoding: "utf8" })
  .map((name) => name.split(Path.sep).join("/"))
  .filter((name) => name.endsWith(".ts") || name.endsWith(".js"))

/** The room of a file: a folder of the armour, a folder of `src`, or `main` for `src/main` and the files at the top. */
const roomOf = (file: string) =>
  Object.keys(armour).find((room) => file.startsWith(`${room}/`)) ??
  (file.includes("/") ? file.slice(0, file.indexOf("/")) : "main")

const importsOf = (file: string) =>
  [
    ...readFileSync(Path.join(src, file), "utf8").matchAll(
      /(?:^|\n)\s*(?:import|export)\b[^"';]*?from\s+"([^"]+)"|\bimport\(\s*"([^"]+)"/g
    )
  ].map((match) => match[1] ?? match[2] ?? "")

const targetOf = (file: string, specifier: string) => Path.posix.join(Path.posix.dirname(file), specifier)

const isAllowed = (room: string, other: string) =>
  other === room || (armour[room] ?? mayImport[room] ?? []).includes(other)

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
      const target = targetOf(file, specifier)
      const other = roomOf(target)
      // Only main composes the armour.
      const allowed = other in armour ? other === room || room === "main" : isAllowed(room, other)
      return allowed ? [] : [`src/${file} imports src/${target}`]
    })
  )

/** The first import circle, as the files in it. Imports of types count, since a reader follows them, too. */
const circle = (): ReadonlyArray<string> => {
  const done = new Set<string>()
  const visit = (file: string, path: ReadonlyArray<string>): ReadonlyArray<string> => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file]
    if (done.has(file)) return []
    for (const specifier of importsOf(file).filter((one) => one.startsWith("."))) {
      const found = visit(targetOf(file, specifier), [...path, file])
      if (found.length > 0) return found
    }
    done.add(file)
    return []
  }
  for (const file of files) {
    const found = visit(file, [])
    if (found.length > 0) return found
  }
  return []
}

/** Imports that break a rule for now. This list only shrinks. */
const notYet: ReadonlyArray<string> = []

describe("Layers", () => {
  it("no import points outwards", () => {
    assert.deepStrictEqual(violations().toSorted(), notYet.toSorted())
  })

  it("no files import each other in a circle", () => {
    assert.deepStrictEqual(circle(), [])
  })

  it("the check sees every file and its imports", () => {
    assert.isAbove(files.length, 30)
    const total = files.reduce((sum, file) => sum + importsOf(file).length, 0)
    assert.isAbove(total, files.length)
    assert.include(importsOf("main.ts"), "./main/UseCases.ts")
    const rooms = new Set(files.map(roomOf))
    assert.deepStrictEqual(
      [...Object.keys(armour), ...Object.keys(mayImport)].filter((room) => !rooms.has(room)),
      []
    )
  })

  it("the package has the mechanism's rooms: all of them are built and exported", () => {
    const read = (file: string) => readFileSync(Path.join(src, file), "utf8").replaceAll(/^\s*\/\/.*$/gm, "")
    const { exports } = JSON.parse(read("../package.json"))
    assert.deepStrictEqual(
      Object.keys(exports).toSorted(),
      mechanism.map((room) => `./${room}/*`)
    )
    assert.deepStrictEqual(JSON.parse(read("tsconfig.package.json")).include.toSorted(), mechanism)
  })

  it("the mechanism does not speak of orders or payments", () => {
    const named = files
      .filter((file) => mechanism.includes(roomOf(file).split("/")[0]!))
      .filter((file) =>
        // Comments may give an example; code may not.
        /\b(order_lines|payments?|Order(?!By)[A-Z]\w*|Payment\w*)\b/.test(
          readFileSync(Path.join(src, file), "utf8").replaceAll(/\/\*[\s\S]*?\*\/|\/\/.*/g, "")
        )
      )
    assert.deepStrictEqual(named, [])
  })
})
