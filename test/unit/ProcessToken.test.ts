/** Processes that are found by a token in their environment. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { spawn } from "node:child_process"
import { once } from "node:events"
import * as ProcessToken from "../../src/cli/drill/ProcessToken.ts"

it.live("only processes with the token are ended, frozen or not", () =>
  Effect.gen(function* () {
    const started = yield* Effect.acquireRelease(
      Effect.sync(() =>
        ["one", "one", "another"].map((token) =>
          spawn("sleep", ["100"], { env: { PATH: process.env["PATH"], ...ProcessToken.envOf(token) } })
        )
      ),
      (all) => Effect.sync(() => all.forEach((child) => child.kill("SIGKILL")))
    )
    yield* Effect.promise(() => Promise.all(started.map((child) => once(child, "spawn"))))
    started[0]!.kill("SIGSTOP")
    yield* ProcessToken.end("one")
    const ended = yield* Effect.promise(() => Promise.all(started.slice(0, 2).map((child) => once(child, "exit"))))
    assert.deepStrictEqual(ended, [
      [null, "SIGKILL"],
      [null, "SIGKILL"]
    ])
    const other = once(started[2]!, "exit")
    started[2]!.kill("SIGTERM")
    assert.deepStrictEqual(yield* Effect.promise(() => other), [null, "SIGTERM"])
    yield* ProcessToken.end("none")
  }).pipe(Effect.scoped)
)
