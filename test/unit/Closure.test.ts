/** The lines of source that a reader of the minimal example has to follow. */
import { assert, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import * as Path from "node:path"

const root = Path.resolve(import.meta.dirname, "../..")

/** Parts that a service replaces: it has Postgres and Kafka instead of the embedded servers. */
const replaced = ["src/brokers/embedded/", "src/postgres/embedded/"]

/** The most that the closure may have. Nobody should delete a comment for a count, so the lines of code have the bound that matters. */
const most = {
  /** Lines of code: without comments and blank lines. */
  code: 4_500,
  /** All lines of the files: the present count, rounded up. */
  all: 6_460
}

interface Size {
  readonly code: number
  readonly all: number
}

/** The size of a file. A comment counts as one only where it begins its line, or is a block. */
const sizeOf = (text: string): Size => {
  const code = text
    .replaceAll(/\/\*[\s\S]*?\*\//g, "")
    .split("\n")
    .filter((line) => line.trim() !== "" && !line.trim().startsWith("//"))
  return { code: code.length, all: text.split("\n").length - 1 }
}

/** The example and all that it imports, directly or not, types included: sizes by file. */
const closure = (entry: string): ReadonlyMap<string, Size> => {
  const found = new Map<string, Size>()
  const visit = (file: string) => {
    if (found.has(file) || replaced.some((folder) => file.startsWith(folder))) return
    const text = readFileSync(Path.join(root, file), "utf8")
    found.set(file, sizeOf(text))
    for (const [, specifier = ""] of text.matchAll(/(?:^|\n)\s*(?:import|export)\b[^"';]*?from\s+"([^"]+)"/g)) {
      if (specifier.startsWith(".")) visit(Path.posix.join(Path.posix.dirname(file), specifier))
      else if (specifier.startsWith("paid-once/")) visit(`${specifier.replace("paid-once", "src")}.ts`)
    }
  }
  visit(entry)
  return found
}

const files = closure("examples/minimal-outbox.ts")

it("the closure has files of every room that the example needs", () => {
  for (const room of ["brokers", "inbox", "outbox", "plain", "platform", "postgres"]) {
    assert.isTrue(
      [...files.keys()].some((file) => file.startsWith(`src/${room}/`)),
      room
    )
  }
})

it("the plain mechanism does not import parking, which a service adds", () => {
  const parking = [...files.keys()].filter((file) => /\/holds\//.test(file) && !file.endsWith("/holds/Holds.ts"))
  assert.deepStrictEqual(parking, [])
})

for (const measure of ["code", "all"] as const) {
  const what = measure === "code" ? "lines of code, without comments and blanks" : "lines in all"
  it(`the minimal example and its imports, less the embedded servers, have at most ${most[measure]} ${what}`, () => {
    const total = [...files.values()].reduce((sum, size) => sum + size[measure], 0)
    const heaviest = [...files].toSorted(([, a], [, b]) => b[measure] - a[measure]).slice(0, 12)
    assert.isAtMost(
      total,
      most[measure],
      `${total} ${what}, in ${files.size} files; most have ${heaviest.map(([file, size]) => `${file} (${size[measure]})`).join(", ")}`
    )
  })
}
