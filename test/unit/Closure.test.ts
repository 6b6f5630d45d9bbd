/** The lines of source that a reader of the minimal example has to follow. */
import { assert, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import * as Path from "node:path"

const root = Path.resolve(import.meta.dirname, "../..")

/** Parts that a service replaces: it has Postgres and Kafka instead of the embedded servers. */
const replaced = ["src/brokers/embedded/", "src/postgres/embedded/"]

/** The most lines in the closure: the present count, rounded up. This number only falls, towards 4,500. */
const maxLines = 7_750

const lines = (text: string) => text.split("\n").length - 1

/** The example and all its imports, direct and indirect, types included: lines by file. */
const closure = (entry: string): ReadonlyMap<string, number> => {
  const found = new Map<string, number>()
  const visit = (file: string) => {
    if (found.has(file) || replaced.some((folder) => file.startsWith(folder))) return
    const text = readFileSync(Path.join(root, file), "utf8")
    found.set(file, lines(text))
    for (const [, specifier = ""] of text.matchAll(/(?:^|\n)\s*(?:import|export)\b[^"';]*?from\s+"([^"]+)"/g)) {
      if (specifier.startsWith(".")) visit(Path.posix.join(Path.posix.dirname(file), specifier))
      else if (specifier.startsWith("paid-once/")) visit(`${specifier.replace("paid-once", "src")}.ts`)
    }
  }
  visit(entry)
  return found
}

it(`the minimal example and its imports, less the embedded servers, have at most ${maxLines} lines`, () => {
  const files = closure("examples/minimal-outbox.ts")
  const total = [...files.values()].reduce((sum, count) => sum + count, 0)
  const heaviest = [...files].toSorted(([, a], [, b]) => b - a).slice(0, 12)
  // The check has followed imports into every room that the example needs.
  for (const room of ["brokers", "inbox", "outbox", "plain", "platform", "postgres"]) {
    assert.isTrue(
      [...files.keys()].some((file) => file.startsWith(`src/${room}/`)),
      room
    )
  }
  assert.isAtMost(
    total,
    maxLines,
    `${total} lines in ${files.size} files; most have ${heaviest.map(([file, count]) => `${file} (${count})`).join(", ")}`
  )
})
