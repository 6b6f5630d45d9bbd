/** Runs an example as `npm run example` does. */
import { Effect } from "effect"
import { execFile } from "node:child_process"
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import { root } from "../support/Postgres.ts"

/**
 * The arguments of the script `example`: the condition that resolves `paid-once/…` to this checkout's source, and flags against Node's
 * warnings.
 */
const flags = (): ReadonlyArray<string> => {
  const { scripts } = JSON.parse(readFileSync(Path.join(root, "package.json"), "utf8"))
  const [exec, node, ...rest] = scripts.example.split(" ")
  if (exec !== "exec" || node !== "node") throw new Error(`the script "example" does not start with "exec node"`)
  return rest
}

/** The output of an example. It fails with the whole output if the exit code is not 0. */
export const runExample = (name: string, variables: Readonly<Record<string, string>>): Effect.Effect<string> =>
  Effect.callback<string>((resume) => {
    const { DATABASE_URL: _, KAFKA_BROKERS: _2, TEST_DATABASE_URL: _3, ...environment } = process.env
    const child = execFile(
      process.execPath,
      [...flags(), Path.join("examples", name)],
      { cwd: root, env: { ...environment, ...variables } },
      (error, stdout, stderr) =>
        resume(
          error === null
            ? Effect.succeed(stdout)
            : Effect.die(new Error(`${name}: ${error.message}\n${stdout}\n${stderr}`))
        )
    )
    return Effect.sync(() => child.kill())
  })
