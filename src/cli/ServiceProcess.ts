/** Another process of the service, as a scoped resource: for the demo, and for tests that kill and freeze processes. */
import { Deferred, Effect, Exit, Option, Schema, type Scope } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import * as Path from "node:path"

/** Ten times what the first start takes on a slow machine, with an embedded Postgres to set up. */
const readyMillis = 120_000

/** The process ended before it was ready, or was not ready in time. */
export class ServiceProcessFailed extends Schema.TaggedError<ServiceProcessFailed>()("ServiceProcessFailed", {
  /** Its exit status, or the signal that ended it; null where it was still running, but not ready. */
  code: Schema.NullOr(Schema.String),
  output: Schema.String
}) {
  override get message() {
    const what =
      this.code === null
        ? `was not ready within ${readyMillis / 1_000} s`
        : `ended with ${this.code} before it was ready`
    return `the process ${what}:\n${this.output}`
  }
}

/** The line that `serve --json` prints once it is ready, as far as it is used here. */
const Ready = Schema.fromJsonString(
  Schema.Struct({
    ready: Schema.Literal(true),
    url: Schema.NullOr(Schema.String),
    consoleUrl: Schema.optionalKey(Schema.String)
  })
)
const decodeReady = Schema.decodeUnknownOption(Ready)

/** A running process of the service. */
export interface ServiceProcess {
  readonly pid: number
  /** Its URL. A process without the role `http` has one only with a `PORT`, for health and metrics alone. */
  readonly url: string | null
  /** The console's address, with the token of the start where one was drawn; undefined without the role `http`. */
  readonly consoleUrl: string | undefined
  readonly signal: (signal: NodeJS.Signals) => Effect.Effect<void>
  /** Its exit status, or the signal that ended it. */
  readonly exit: Effect.Effect<number | NodeJS.Signals>
  /** Its output so far. */
  readonly output: () => string
}

/** How much of the output is kept for an error message: its end. */
const keptOutput = 100_000

const entry = Path.resolve(import.meta.dirname, "../paid-once.js")

/**
 * Ends the process cleanly once its channel to us is gone, as after a kill -9 of this one: nobody else would end it. The channel itself keeps no
 * process alive: a peer of the benchmarks ends by having nothing to do.
 */
const endingWithParent = `data:text/javascript,process.once("disconnect", () => process.kill(process.pid, "SIGTERM")); process.channel?.unref()`

/**
 * Starts `paid-once serve` with these roles and variables, and waits until it is ready. Closing the scope sends SIGTERM and waits for its end. It
 * ends too when this process is killed.
 */
export const start = Effect.fn("ServiceProcess.start")(function* (options: {
  readonly roles?: string
  readonly env: Readonly<Record<string, string>>
  readonly script?: string
}): Effect.fn.Return<ServiceProcess, ServiceProcessFailed, Scope.Scope> {
  const exited = yield* Deferred.make<number | NodeJS.Signals>()
  const ready = yield* Deferred.make<typeof Ready.Type, ServiceProcessFailed>()
  let output = ""
  const child = yield* Effect.acquireRelease(
    Effect.sync((): ChildProcess =>
      spawn(
        process.execPath,
        [
          "--import",
          endingWithParent,
          options.script ?? entry,
          "serve",
          "--json",
          ...(options.roles === undefined ? [] : ["--roles", options.roles])
        ],
        { env: { PATH: process.env["PATH"], ...options.env }, stdio: ["ignore", "pipe", "pipe", "ipc"] }
      )
    ),
    (running) =>
      Effect.andThen(
        // A frozen process takes the signal once it goes on.
        Effect.sync(() => (running.kill("SIGTERM"), running.kill("SIGCONT"))),
        Deferred.await(exited)
      )
  )
  const collect = (chunk: Buffer) => {
    output = (output + chunk.toString()).slice(-keptOutput)
    if (Deferred.isDoneUnsafe(ready)) return
    for (const line of output.split("\n")) {
      const report = decodeReady(line)
      if (Option.isSome(report)) Deferred.doneUnsafe(ready, Exit.succeed(report.value))
    }
  }
  child.stdout?.on("data", collect)
  child.stderr?.on("data", collect)
  const end = (code: number | NodeJS.Signals) => {
    Deferred.doneUnsafe(ready, Exit.fail(new ServiceProcessFailed({ code: String(code), output })))
    Deferred.doneUnsafe(exited, Exit.succeed(code))
  }
  child.on("close", (code, signal) => end(code ?? signal ?? 1))
  child.on("error", (error) => {
    output += error.message
    end(1)
  })
  const { consoleUrl, url } = yield* Effect.timeoutOrElse(Deferred.await(ready), {
    duration: readyMillis,
    orElse: () => Effect.fail(new ServiceProcessFailed({ code: null, output }))
  })
  return {
    pid: child.pid ?? 0,
    url,
    consoleUrl,
    signal: (signal) => Effect.sync(() => void child.kill(signal)),
    exit: Deferred.await(exited),
    output: () => output
  }
})
