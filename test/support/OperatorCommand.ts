/** The operator's commands as they are typed: each in a process of its own, with the environment of the service beside it. */
import { Context, Effect, Layer, Redacted } from "effect"
import { execFile } from "node:child_process"
import * as Path from "node:path"
import { plantedEnv } from "../mutants/planted.ts"
import { root, TestDatabase } from "./TestDatabase.ts"

/** The service's data directory. */
export class Directory extends Context.Service<Directory, { readonly path: string }>()("test/support/Directory") {
  static readonly layer = Layer.effect(
    Directory,
    Effect.map(TestDatabase.dataDirectory, (path) => ({ path }))
  )
}

/** The environment of the service and of the commands, with these variables. */
export const environmentWith = (variables: Readonly<Record<string, string>>) =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const { path } = yield* Directory
    return { DATABASE_URL: Redacted.value(url), DATA_DIRECTORY: path, PORT: "0", LOG_LEVEL: "Error", ...variables }
  })

/** More than any test prints. Node's own bound is 1 MiB. */
const maxOutputBytes = 32 * 1_048_576

/** Runs `paid-once <name> <args>` to its end, for `timeoutMillis` at most. */
export const commandOf =
  <R>(name: string, environment: Effect.Effect<Readonly<Record<string, string>>, never, R>, timeoutMillis = 50_000) =>
  (...args: ReadonlyArray<string>) =>
    Effect.flatMap(environment, (env) =>
      Effect.callback<{ readonly code: unknown; readonly stdout: string; readonly stderr: string }>((resume) => {
        const child = execFile(
          process.execPath,
          [Path.join(root, "src/paid-once.js"), name, ...args],
          {
            env: { PATH: process.env["PATH"], ...plantedEnv(), ...env },
            timeout: timeoutMillis,
            maxBuffer: maxOutputBytes
          },
          (error, stdout, stderr) => resume(Effect.succeed({ code: error === null ? 0 : error.code, stdout, stderr }))
        )
        return Effect.sync(() => void child.kill("SIGKILL"))
      })
    )
