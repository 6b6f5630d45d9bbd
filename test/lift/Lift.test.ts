/**
 * The mechanism in another service: the package that `npm pack` makes, installed into an empty project outside this checkout. The project
 * has its own `node_modules` and its own tsconfig, so it can't use the checkout's by accident.
 */
import { assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { execFile } from "node:child_process"
import { copyFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import { promisify } from "node:util"
import { root, TestDatabase } from "../support/TestDatabase.ts"

const run = promisify(execFile)

/** The time limit of an install on a slow network, and a type check on a busy machine. */
const timeoutMillis = 900_000

/** The commands use the Node that runs this test, without the variables that npm has set for this run. */
const environment = {
  ...Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^(npm_.*|NODE_OPTIONS|INIT_CWD)$/i.test(name))
  ),
  PATH: `${Path.dirname(process.execPath)}${Path.delimiter}${process.env["PATH"]}`
}

/** Runs a command; its failure contains the output. */
const execute = (directory: string, file: string, args: ReadonlyArray<string>, more: Record<string, string> = {}) =>
  run(file, [...args], { cwd: directory, env: { ...environment, ...more }, maxBuffer: 64_000_000 }).catch(
    (error: { readonly stdout: string; readonly stderr: string }) =>
      assert.fail(`${file} ${args.join(" ")}\n${error.stdout}\n${error.stderr}`)
  )

interface Packed {
  readonly filename: string
  readonly files: ReadonlyArray<{ readonly path: string }>
}

/** A strict project without `skipLibCheck`, so that our declarations are checked. Effect's declarations are checked as well, and need `dom`. */
const tsconfig = {
  compilerOptions: {
    target: "es2024",
    lib: ["es2024", "esnext.iterator", "dom"],
    module: "nodenext",
    types: ["node"],
    strict: true,
    noEmit: true,
    allowImportingTsExtensions: true
  },
  include: ["*.ts"]
}

describe("the package", () => {
  let project = ""
  let packed: Packed = { filename: "", files: [] }

  beforeAll(async () => {
    project = await mkdtemp(Path.join(tmpdir(), "paid-once-lift-"))
    const { stdout } = await execute(root, "npm", ["pack", "--json", "--pack-destination", project])
    // The script `prepack` may print lines before npm's own output.
    packed = JSON.parse(stdout.slice(stdout.search(/^\[/m)))[0]
    return () => rm(project, { recursive: true, force: true })
  }, timeoutMillis)

  it("holds the mechanism's rooms as JavaScript with types, and its migrations", () => {
    const folders = new Set(packed.files.map(({ path }) => path.split("/").slice(0, 2).join("/")))
    assert.deepStrictEqual([...folders].toSorted(), [
      "LICENSE",
      "README.md",
      ...["brokers", "guards", "inbox", "operations", "outbox", "plain", "platform", "postgres", "tasks"].map(
        (room) => `dist/${room}`
      ),
      "migrations/mechanism",
      "package.json"
    ])
    const built = packed.files.map(({ path }) => path).filter((path) => path.startsWith("dist/"))
    assert.deepStrictEqual(
      built.filter((path) => !/\.(js|d\.ts)$/.test(path)),
      []
    )
  })

  it.live(
    "installs into an empty project, type-checks there, and runs the minimal example",
    () =>
      Effect.gen(function* () {
        const { url } = yield* TestDatabase.make("template0")
        yield* Effect.promise(async () => {
          const { devDependencies } = JSON.parse(await readFile(Path.join(root, "package.json"), "utf8"))
          const modules = packed.files.flatMap(({ path }) => /^dist\/(.+)\.js$/.exec(path)?.[1] ?? [])
          const everything = modules.map((name, index) => `export * as module${index} from "paid-once/${name}"`)
          await writeFile(
            Path.join(project, "package.json"),
            `{ "name": "stranger", "private": true, "type": "module" }`
          )
          await writeFile(Path.join(project, "tsconfig.json"), JSON.stringify(tsconfig))
          await writeFile(Path.join(project, "everything.ts"), everything.join("\n"))
          for (const file of ["minimal-outbox.ts", "Location.ts"]) {
            await copyFile(Path.join(root, "examples", file), Path.join(project, file))
          }
          await execute(project, "npm", [
            "install",
            "--prefer-offline",
            "--no-audit",
            "--no-fund",
            `./${packed.filename}`,
            `typescript@${devDependencies.typescript}`,
            `@types/node@${devDependencies["@types/node"]}`
          ])
          await execute(project, Path.join(project, "node_modules/.bin/tsc"), [])
          await execute(project, process.execPath, ["everything.ts"])
        })
        const { stdout } = yield* Effect.promise(() =>
          execute(project, process.execPath, ["minimal-outbox.ts"], { DATABASE_URL: Redacted.value(url) })
        )
        assert.match(stdout, /^The subscriber saw 3 deposits, 60 in all\.$/m)
      }),
    timeoutMillis
  )
})
