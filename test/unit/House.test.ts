/** Limits on the length of files, and links in pages that point at nothing. */
import { assert, describe, it } from "@effect/vitest"
import { execFileSync } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import * as Path from "node:path"

const root = Path.resolve(import.meta.dirname, "../..")
const tracked = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], {
  cwd: root,
  encoding: "utf8"
})
  .split("\n")
  .filter((file) => file !== "" && existsSync(Path.join(root, file)))
const textOf = (file: string) => readFileSync(Path.join(root, file), "utf8")
const linesOf = (file: string) => textOf(file).split("\n").length - 1

/** The most lines of a file; the first pattern that matches counts. */
const budgets: ReadonlyArray<readonly [pattern: RegExp, lines: number]> = [
  [/^(README|ARCHITECTURE)\.md$/, 250],
  [/^src\/main\.ts$/, 180],
  [/^src\/.*README\.md$/, 60],
  [/^src\/.*\.ts$/, 300],
  [/^examples\/.*\.ts$/, 100]
]

const pages = tracked.filter((file) => file.endsWith(".md") && !file.startsWith("test/mistakes/"))
const rooms = [
  "application",
  "brokers",
  "cli",
  "domain",
  "guards",
  "http",
  "inbox",
  "main",
  "operations",
  "outbox"
].concat(["plain", "platform", "postgres", "sandbox", "tasks"])

/** GitHub's name of a heading. */
const anchorOf = (heading: string) =>
  heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s-]/gu, "")
    .trim()
    .replaceAll(/\s/g, "-")

describe("the house", () => {
  it("every file is within its budget", () => {
    const over = tracked.flatMap((file) => {
      const budget = budgets.find(([pattern]) => pattern.test(file))
      return budget !== undefined && linesOf(file) > budget[1]
        ? [`${file}: ${linesOf(file)} of ${budget[1]} lines`]
        : []
    })
    assert.deepStrictEqual(over, [])
  })

  it("every room has a README", () => {
    assert.deepStrictEqual(
      rooms.filter((room) => !tracked.includes(`src/${room}/README.md`)),
      []
    )
  })

  it("no page points at a missing file", () => {
    const exists = (path: string) => existsSync(Path.join(root, path))
    const broken = pages.flatMap((page) => {
      const text = textOf(page)
      const prose = text.replaceAll(/```[\s\S]*?```/g, "")
      const links = [...prose.matchAll(/\]\(([^)\s]+)\)/g)].map((match) => match[1]!)
      const linked = links
        .filter((link) => !/^https?:/.test(link))
        .filter((link) => {
          const [path = "", anchor] = link.split("#")
          const target = path === "" ? page : Path.join(Path.dirname(page), path)
          if (!exists(target)) return true
          if (anchor === undefined) return false
          const headings = [...textOf(target).matchAll(/^#+\s+(.*)$/gm)].map((match) => anchorOf(match[1]!))
          return !headings.includes(anchor)
        })
      // A whole path in code, from the root or from the page's own folder. Pages of a room name its files without a path.
      const named = [...prose.matchAll(/`((?:src|test|docs|examples|migrations|bench)\/[\w./-]*[\w/])`/g)]
        .map((match) => match[1]!)
        .filter((path) => !exists(path))
      const files = [...prose.matchAll(/`(?:[\w/]+\/)?(\w+\.(?:test\.)?ts)`/g)]
        .map((match) => match[1]!)
        .filter((name) => !tracked.some((file) => Path.basename(file) === name))
      return [...linked, ...named, ...files].map((target) => `${page}: ${target}`)
    })
    assert.deepStrictEqual(broken, [])
  })
})
