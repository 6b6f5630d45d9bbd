/** A process loads the files that Node would find, no more than its command needs, and compiled code that only the checkout's owner can write. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { execFile } from "node:child_process"
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import * as Path from "node:path"
import { plantedEnv } from "../mutants/planted.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"

/** Runs Node with these arguments to its end. */
const node = (args: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) =>
  Effect.callback<{ readonly code: unknown; readonly stdout: string; readonly stderr: string }>((resume) => {
    const child = execFile(
      process.execPath,
      args,
      { cwd: root, env: { PATH: process.env["PATH"], ...plantedEnv(), ...env }, timeout: 110_000, maxBuffer: 2 ** 24 },
      (error, stdout, stderr) => resume(Effect.succeed({ code: error === null ? 0 : error.code, stdout, stderr }))
    )
    return Effect.sync(() => void child.kill("SIGKILL"))
  })

/** Notes each file that is loaded, with its format, and prints them as the last line of stderr. */
const noting = `
import { registerHooks } from "node:module"
import { writeSync } from "node:fs"
const loaded = []
registerHooks({ load(url, context, next) {
  if (url.startsWith("file:")) loaded.push(url.slice(${JSON.stringify(`file://${root}/`)}.length) + " " + context.format)
  return next(url, context)
} })
process.on("exit", () => writeSync(2, "\\n" + JSON.stringify(loaded)))`

const noted = (directory: string) => {
  const file = Path.join(directory, "noting.mjs")
  writeFileSync(file, noting)
  return ["--import", file]
}

const loadedBy = (stderr: string): ReadonlyArray<string> => JSON.parse(stderr.split("\n").at(-1)!)

it.live("imports are resolved to the files and formats that Node resolves them to", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    const all = `for (const file of ["src/main.ts", "src/main/Kafka.ts", "src/cli/Demo.ts"]) await import(${JSON.stringify(`file://${root}/`)} + file); process.exit()`
    const run = (first: string) => node([...noted(directory), "--input-type=module", "--eval", `${first}; ${all}`])
    const install = `(await import(${JSON.stringify(`file://${root}/src/cli/Resolving.ts`)})).install()`
    const ours = yield* run(install)
    const nodes = yield* run(`await import(${JSON.stringify(`file://${root}/src/cli/Resolving.ts`)})`)
    assert.isAbove(loadedBy(nodes.stderr).length, 500)
    assert.deepStrictEqual(loadedBy(ours.stderr).toSorted(), loadedBy(nodes.stderr).toSorted())
  }).pipe(Effect.scoped)
)

/** What only a service needs. */
const ofService =
  /kafkajs|nodemailer|undici|src\/(main\.ts|http\/(?!Problems|access)|outbox\/(Dispatcher|Pipeline)|inbox\/Consumer|sandbox\/GatewayServer)/

it.live("help and wrong usage load neither a service nor a database", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    for (const [args, code] of [
      [["--help"], 0],
      [["bogus"], 2]
    ] as const) {
      const { code: status, stderr } = yield* node([...noted(directory), "src/paid-once.js", ...args])
      const own = loadedBy(stderr).filter((file) => file.startsWith("src/"))
      assert.strictEqual(status, code)
      assert.isNotEmpty(own)
      assert.deepStrictEqual(
        loadedBy(stderr).filter((file) => ofService.test(file) || file.includes("sql-pg")),
        []
      )
      assert.isBelow(own.length, 10)
    }
  }).pipe(Effect.scoped)
)

it.live(
  "an operator's command loads what it asks the database with, and neither servers, loops nor a broker's client",
  () =>
    Effect.gen(function* () {
      const directory = yield* TestDatabase.dataDirectory
      const { url } = yield* TestDatabase
      const env = { DATABASE_URL: Redacted.value(url), DATA_DIRECTORY: directory }
      for (const args of [
        ["outbox", "status"],
        ["tasks", "list"],
        ["status"],
        ["customer", "erase", "--customer", "ada", "--dry-run"]
      ]) {
        const { stderr } = yield* node([...noted(directory), "src/paid-once.js", ...args], env)
        const loaded = loadedBy(stderr)
        assert.isTrue(loaded.some((file) => /^src\/main\/(Commands|Erasure)\.ts/.test(file)))
        assert.deepStrictEqual(
          loaded.filter((file) => ofService.test(file)),
          []
        )
      }
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)

const cache = Path.join(root, "node_modules/.cache/paid-once/compiled")

const filesIn = (directory: string) =>
  readdirSync(directory, { recursive: true, encoding: "utf8" })
    .map((name) => Path.join(directory, name))
    .filter((path) => statSync(path).isFile())

it.live("compiled code is kept beside the modules, where nobody else can write", () =>
  Effect.gen(function* () {
    assert.strictEqual((yield* node(["src/paid-once.js", "--help"])).code, 0)
    assert.isNotEmpty(filesIn(cache))
    for (const path of [cache, ...filesIn(cache)]) assert.strictEqual(statSync(path).mode & 0o022, 0, path)
  })
)

it.live("a start whose code is in the cache loads no compiler for TypeScript", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    const file = Path.join(directory, "telling.mjs")
    writeFileSync(
      file,
      `import { writeSync } from "node:fs"
       process.on("exit", () => writeSync(2, String(process.moduleLoadList.filter((name) => name.includes("amaro")))))`
    )
    const help = node(["--import", file, "src/paid-once.js", "--help"])
    yield* help
    assert.strictEqual((yield* help).stderr, "")
    // It would be seen: a program that is in no cache needs it.
    const fresh = yield* node(["--import", file, "src/cli/EarlySignals.ts"])
    assert.include(fresh.stderr, "amaro")
  }).pipe(Effect.scoped)
)

it.live("a cache with broken files, or one that can't be written, does no harm", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    const help = (place: string) => node(["src/paid-once.js", "--help"], { NODE_COMPILE_CACHE: place })
    const place = Path.join(directory, "compiled")
    const expected = yield* help(place)
    const files = filesIn(place)
    assert.isNotEmpty(files)
    for (const path of files) {
      const bytes = readFileSync(path)
      writeFileSync(path, Buffer.concat([bytes.subarray(0, bytes.length / 2), Buffer.alloc(bytes.length / 2, 7)]))
    }
    assert.deepStrictEqual(yield* help(place), expected)
    const file = Path.join(directory, "a-file")
    writeFileSync(file, "")
    assert.deepStrictEqual(yield* help(file), expected)
  }).pipe(Effect.scoped)
)
