/** Drills on a demo that stays: each is a process of the demo, as a person would run it in a shell, and tells its lines. One runs at a time. */
import { Effect, FiberSet } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import * as Path from "node:path"
import { createInterface } from "node:readline"
import { Problem } from "../../http/Problems.ts"
import { descriptions, type DrillName, drillNames } from "../drill/DrillNames.ts"
import { unknown } from "./Children.ts"

const entry = Path.resolve(import.meta.dirname, "../../paid-once.js")

/** Until the scope closes, which ends a running drill as Ctrl-C does: it mends what it broke. */
export const make = Effect.fnUntraced(function* (
  env: Readonly<Record<string, string>>,
  tell: (what: string) => Effect.Effect<void>
) {
  let running: { readonly name: DrillName; readonly child: ChildProcess } | undefined
  const run = yield* FiberSet.makeRuntime<never, void, never>()
  const isName = (name: string): name is DrillName => drillNames.includes(name as DrillName)

  const ended = Effect.callback<void>((resume) => {
    if (running === undefined) return resume(Effect.void)
    running.child.once("close", () => resume(Effect.void))
    running.child.kill("SIGINT")
  })
  yield* Effect.addFinalizer(() => ended)

  const begin = (name: DrillName, url: string) => {
    const child = spawn(process.execPath, [entry, "drill", name, "--url", url], {
      env: { PATH: process.env["PATH"], ...env },
      stdio: ["ignore", "pipe", "pipe"]
    })
    running = { name, child }
    const says = (line: string) => {
      const what = line.trim().replace(/\.$/, "")
      // The page that tells it has the links already.
      if (what !== "" && !what.startsWith("http")) run(tell(`${name}: ${what}`))
    }
    createInterface(child.stdout).on("line", says)
    createInterface(child.stderr).on("line", (line) => (line.startsWith("paid-once: ") ? says(line) : undefined))
    child.on("close", (code, signal) => {
      running = undefined
      run(tell(`The drill ${name} has ended: ${code === 0 ? "the sums agree" : `status ${code ?? signal}`}`))
    })
  }

  return {
    /** The drill that is running. */
    running: () => running?.name,
    list: () => drillNames.map((name) => ({ name, shows: descriptions[name], isRunning: running?.name === name })),
    /** Begins the drill on the service at `url`. Refused while another one runs. */
    act: (name: string, url: string): Effect.Effect<void, Problem> =>
      !isName(name)
        ? unknown("drill", name, drillNames)
        : Effect.suspend(() =>
            running === undefined
              ? Effect.sync(() => begin(name, url))
              : Effect.fail(new Problem({ status: 409, detail: `the drill ${running.name} is running: one at a time` }))
          )
  }
})
