/** How a process ends whose output somebody reads through a pipe. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { spawn } from "node:child_process"
import * as Path from "node:path"
import { plantedEnv } from "../mutants/planted.ts"
import { root } from "../support/TestDatabase.ts"

/** Far more than a pipe takes at once, on any system. */
const characters = 3_000_000

const program = `
  import { Console, Effect } from "effect"
  import { ExitStatus, runMain } from "./src/cli/Process.ts"
  runMain(Effect.andThen(Console.log("x".repeat(${characters})), Effect.fail(new ExitStatus(1))))`

/** A process that prints so much. Nothing is read yet. */
const printing = Effect.acquireRelease(
  Effect.sync(() =>
    spawn(process.execPath, ["--input-type=module-typescript", "--eval", program], {
      cwd: Path.resolve(root),
      env: { PATH: process.env["PATH"], ...plantedEnv() },
      stdio: ["ignore", "pipe", "inherit"]
    })
  ),
  (child) => Effect.sync(() => void child.kill("SIGKILL"))
)
type Child = Effect.Success<typeof printing>

const ended = (child: Child) =>
  Effect.callback<readonly [number | null, NodeJS.Signals | null]>((resume) => {
    child.once("exit", (code, signal) => resume(Effect.succeed([code, signal])))
  })

/** The pipe is full. */
const begun = (child: Child) =>
  Effect.callback<void>((resume) => {
    child.stdout.once("readable", () => resume(Effect.void))
  })

it.live("a reader gets all that was printed before the process leaves with its status", () =>
  Effect.gen(function* () {
    const child = yield* printing
    yield* begun(child)
    let read = 0
    child.stdout.on("data", (chunk: Buffer) => (read += chunk.length))
    const all = Effect.callback<void>((resume) => {
      child.stdout.once("end", () => resume(Effect.void))
    })
    const [status] = yield* Effect.all([ended(child), all], { concurrency: 2 })
    assert.deepStrictEqual([read, status], [characters + 1, [1, null]])
  }).pipe(Effect.scoped)
)

it.live("a reader that has gone does not keep it", () =>
  Effect.gen(function* () {
    const child = yield* printing
    yield* begun(child)
    child.stdout.destroy()
    assert.deepStrictEqual(yield* ended(child), [1, null])
  }).pipe(Effect.scoped)
)

it.live("nor does one that reads no further, once a signal comes", () =>
  Effect.gen(function* () {
    const child = yield* printing
    yield* begun(child)
    child.kill("SIGTERM")
    const [code] = yield* ended(child)
    assert.strictEqual(code, 143)
  }).pipe(Effect.scoped)
)
