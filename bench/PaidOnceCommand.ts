/** A command of `paid-once` in a process of its own: its time, and the most memory that it had. */
import { Effect } from "effect"
import { spawn } from "node:child_process"
import * as Path from "node:path"
import packageFile from "../package.json" with { type: "json" }

const root = Path.resolve(import.meta.dirname, "..")

/** The flags of Node with which `npm run paid-once` starts it. Without a limit of the heap V8 collects later on a machine with much memory. */
const flags = packageFile.scripts["paid-once"].split(" ").filter((word) => word.startsWith("--max-"))

/** Peak memory of the process, as the kernel counts it: read by the process itself right before it ends. */
const telling = `data:text/javascript,process.on("exit",()=>process.stderr.write("maxRss "+process.resourceUsage().maxRSS+"\\n"))`

/** Runs it with `--json`, whatever its exit status is. `out` is the JSON. */
export const run = (args: ReadonlyArray<string>, environment: Readonly<Record<string, string>>) =>
  Effect.callback<{ readonly seconds: number; readonly megabytesAtMost: number; readonly out: unknown }>((resume) => {
    const began = performance.now()
    const child = spawn(
      process.execPath,
      [...flags, "--import", telling, Path.join(root, "src/paid-once.js"), ...args, "--json"],
      { env: { PATH: process.env["PATH"], LOG_LEVEL: "Error", ...environment } }
    )
    let [out, err] = ["", ""]
    child.stdout.on("data", (chunk: Buffer) => (out += chunk.toString()))
    child.stderr.on("data", (chunk: Buffer) => (err += chunk.toString()))
    child.on("close", () => {
      const kilobytes = Number(/maxRss (\d+)/.exec(err)?.[1])
      resume(
        out === ""
          ? Effect.die(new Error(err))
          : Effect.succeed({
              seconds: (performance.now() - began) / 1_000,
              megabytesAtMost: Math.round(kilobytes / 1_024),
              out: JSON.parse(out) as unknown
            })
      )
    })
    return Effect.sync(() => void child.kill())
  })
