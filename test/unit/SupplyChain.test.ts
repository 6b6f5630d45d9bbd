/** What `npm ci` brings: only what the lock file names, byte for byte, and what docs/dependencies.md tells of it. */
import { assert, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import * as Path from "node:path"

const root = Path.resolve(import.meta.dirname, "../..")
const textOf = (file: string) => readFileSync(Path.join(root, file), "utf8")

type Versions = Readonly<Record<string, string>>
interface Entry {
  readonly version: string
  readonly integrity?: string
  readonly resolved?: string
  readonly license?: string
  readonly os?: string | ReadonlyArray<string>
  readonly cpu?: string | ReadonlyArray<string>
  readonly dev?: boolean
  readonly hasInstallScript?: boolean
  readonly dependencies?: Versions
  readonly optionalDependencies?: Versions
  readonly peerDependencies?: Versions
  readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional?: boolean }>>
}
const lock = JSON.parse(textOf("package-lock.json")) as { readonly packages: Readonly<Record<string, Entry>> }
const manifest = JSON.parse(textOf("package.json")) as {
  readonly dependencies: Versions
  readonly devDependencies: Versions
  readonly optionalDependencies: Versions
  readonly allowScripts: Readonly<Record<string, boolean>>
}
const page = textOf("docs/dependencies.md")

const direct: Versions = { ...manifest.dependencies, ...manifest.optionalDependencies, ...manifest.devDependencies }
const entries = Object.entries(lock.packages).filter(([key]) => key !== "")
const nameOf = (key: string) => key.slice(key.lastIndexOf("node_modules/") + "node_modules/".length)

/** Whether the package can be installed on one of the platforms that the service runs on. */
const isForUs = ({ cpu, os }: Entry) =>
  [os ?? "linux"].flat().includes("linux") && [cpu ?? "x64"].flat().some((one) => one === "x64" || one === "arm64")

/** Packages whose hash the registry did not tell when the lock file was made. Developers' tools only. */
const unhashed = ["@effect/tsgo-linux-arm64"]

/** The licences that a service may be built with, without asking a lawyer. MPL-2.0 is for tools only: their files are not changed or shipped. */
const licences = ["0BSD", "Apache-2.0", "BSD-3-Clause", "ISC", "MIT", "MIT-0"]
const toolLicences = [...licences, "MPL-2.0"]

it("every package that can be installed on Linux x64 and arm64 has an integrity", () => {
  const missing = entries.filter(([, entry]) => isForUs(entry) && !/^sha512-.{88}$/.test(entry.integrity ?? ""))
  assert.deepStrictEqual(
    missing.map(([key]) => nameOf(key)),
    unhashed
  )
  assert.isTrue(missing.every(([, { dev }]) => dev === true))
})

it("every direct dependency has one exact version, which the lock file has too", () => {
  for (const [name, version] of Object.entries(direct)) {
    assert.match(version, /^\d+\.\d+\.\d+(?:-[\w.]+)?$/, name)
    assert.strictEqual(lock.packages[`node_modules/${name}`]?.version, version, name)
  }
})

it("no package comes from another host than npm's registry, and only named ones run a script", () => {
  for (const [key, { resolved = "https://registry.npmjs.org/" }] of entries) {
    assert.strictEqual(new URL(resolved).origin, "https://registry.npmjs.org", key)
  }
  assert.deepStrictEqual(
    entries.filter(([, { hasInstallScript }]) => hasInstallScript).map(([key]) => nameOf(key)),
    Object.keys(manifest.allowScripts)
  )
})

it("every licence is one of those that the page names", () => {
  const odd = entries.filter(([, { dev, license = "none" }]) => !(dev ? toolLicences : licences).includes(license))
  assert.deepStrictEqual(odd, [])
  for (const licence of toolLicences) assert.include(page, licence)
})

/** The packages that `name` brings along, on any platform, beside the direct dependencies. npm installs the peers that a package demands. */
const broughtBy = (name: string): ReadonlySet<string> => {
  const found = new Set<string>()
  const visit = (key: string) => {
    const { dependencies, optionalDependencies, peerDependencies, peerDependenciesMeta } = lock.packages[key]!
    const peers = Object.keys(peerDependencies ?? {}).filter((peer) => peerDependenciesMeta?.[peer]?.optional !== true)
    for (const other of [...Object.keys({ ...dependencies, ...optionalDependencies }), ...peers]) {
      // Nested first, as Node resolves it.
      const next = [`${key}/node_modules/${other}`, `node_modules/${other}`].find((one) => one in lock.packages)
      if (next === undefined || found.has(next) || nameOf(next) in direct) continue
      found.add(next)
      visit(next)
    }
  }
  visit(`node_modules/${name}`)
  return found
}

it("docs/dependencies.md has a row for each direct dependency, with version, licence and what it brings along", () => {
  const rows = page.split("\n").filter((line) => line.startsWith("| `"))
  assert.deepStrictEqual(rows.map((row) => row.split("`")[1] ?? "").toSorted(), Object.keys(direct).toSorted())
  for (const [name, version] of Object.entries(direct)) {
    const row = rows.find((one) => one.startsWith(`| \`${name}\` `))!
    const cells = row.split("|").map((cell) => cell.trim())
    const { license } = lock.packages[`node_modules/${name}`]!
    assert.deepStrictEqual(
      [cells[2], cells[5], cells[6]],
      [version, license, String(broughtBy(name).size)],
      `${name}: version, licence, brings along`
    )
  }
  const shipped = entries.filter(([, { dev }]) => dev !== true).length
  assert.include(page, `The lock file has ${entries.length} packages; ${shipped} of them are no tools of developers.`)
})
