/** The mechanism in another service: copied as it is, with its migrations, into a project that knows no order. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { execFile } from "node:child_process"
import { cp, mkdtemp, rm, symlink, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import { promisify } from "node:util"
import { root, TestDatabase } from "../support/TestDatabase.ts"

const run = promisify(execFile)

/** What is copied: all of the mechanism, and nothing else of ours. */
const lifted = [
  ...["brokers", "guards", "inbox", "operations", "outbox", "platform", "postgres", "tasks"].map(
    (room) => `src/${room}`
  ),
  "migrations/mechanism"
]

it.live("the mechanism runs in an empty project with another aggregate", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.make("template0")
    const directory = yield* Effect.acquireRelease(
      Effect.promise(() => mkdtemp(Path.join(tmpdir(), "paid-once-lift-"))),
      (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
    )
    yield* Effect.promise(async () => {
      for (const part of lifted) {
        await cp(Path.join(root, part), Path.join(directory, part.replace(/^src\//, "")), {
          recursive: true
        })
      }
      await cp(Path.join(import.meta.dirname, "project"), directory, { recursive: true })
      await symlink(Path.join(root, "node_modules"), Path.join(directory, "node_modules"))
      await writeFile(Path.join(directory, "package.json"), `{ "name": "lifted", "type": "module" }`)
      await writeFile(
        Path.join(directory, "tsconfig.json"),
        JSON.stringify({ extends: Path.join(root, "tsconfig.json"), include: ["."], exclude: ["node_modules"] })
      )
    })
    yield* Effect.promise(() =>
      run(process.execPath, [Path.join(root, "node_modules/typescript/bin/tsc"), "-p", directory])
    )
    const { stdout } = yield* Effect.promise(() =>
      run(process.execPath, [Path.join(directory, "main.ts"), Redacted.value(url)])
    )
    assert.deepStrictEqual(JSON.parse(stdout.trim().split("\n").at(-1) ?? ""), [
      { id: "a", value: 3 },
      { id: "b", value: 2 },
      { id: "c", value: 1 }
    ])
  })
)
