/**
 * `bench reconcile`: the command over many orders that agree, in a process of its own: its time, and the most memory that it had. The gateway is the
 * sandbox in the same process. The rows are made inside Postgres.
 */
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { spawn } from "node:child_process"
import * as Path from "node:path"
import packageFile from "../package.json" with { type: "json" }
import * as SandboxSchema from "../src/sandbox/SandboxSchema.ts"
import * as ManyOrders from "../test/support/ManyOrders.ts"
import { Environment, pool, Side } from "./Environment.ts"

const root = Path.resolve(import.meta.dirname, "..")

/** The flags of Node with which `npm run paid-once` starts it. Without a limit of the heap V8 collects later on a machine with much memory. */
const flags = packageFile.scripts["paid-once"].split(" ").filter((word) => word.startsWith("--max-"))

/** Peak memory of the process, as the kernel counts it: read by the process itself right before it ends. */
const telling = `data:text/javascript,process.on("exit",()=>process.stderr.write("maxRss "+process.resourceUsage().maxRSS+"\\n"))`

const command = (url: string) =>
  Effect.callback<{ readonly seconds: number; readonly megabytesAtMost: number; readonly report: Report }>((resume) => {
    const began = performance.now()
    const child = spawn(
      process.execPath,
      [...flags, "--import", telling, Path.join(root, "src/paid-once.ts"), "reconcile", "--json"],
      { env: { PATH: process.env["PATH"], DATABASE_URL: url, LOG_LEVEL: "Error" } }
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
              report: JSON.parse(out) as Report
            })
      )
    })
    return Effect.sync(() => void child.kill())
  })

interface Report {
  readonly differences: number
  readonly compared: ReadonlyArray<{ readonly name: string; readonly rows: number }>
  readonly notCompared: ReadonlyArray<unknown>
}

export const reconcile = Effect.fnUntraced(function* ({ orders }: { readonly orders: number }) {
  const { databaseUrl } = yield* Environment
  const sql = yield* Side
  yield* Effect.provide(SandboxSchema.migrate, pool)
  yield* Effect.provide(ManyOrders.fill(orders), Layer.succeed(SqlClient.SqlClient, sql))
  const { megabytesAtMost, report, seconds } = yield* command(Redacted.value(databaseUrl))
  return { orders, seconds, megabytesAtMost, ...report }
})

export const print = ({
  compared,
  differences,
  megabytesAtMost,
  orders,
  seconds
}: Effect.Success<ReturnType<typeof reconcile>>): string =>
  `${orders} orders in ${seconds.toFixed(1)} s (${Math.round(orders / seconds)}/s), at most ${megabytesAtMost} MB resident, ${differences} differences; ` +
  compared.map(({ name, rows }) => `${name} ${rows}`).join(", ")
