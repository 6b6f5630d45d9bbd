/**
 * How the process ends. The first SIGINT or SIGTERM closes every scope in order. Then a service exits 0, and a command that had not finished exits
 * 130 or 143 with a line that says so. A second signal, or the hard limit, exits at once; the next start recovers.
 */
import { Cause, Console, Effect, Exit, type Fiber, Option, Runtime } from "effect"
import * as Grace from "../platform/Grace.ts"
import { innermost } from "../platform/Innermost.ts"
import * as EarlySignals from "./EarlySignals.ts"

/** The exit status of a command: 0 success, 1 problems found, 2 wrong usage. An interrupted command has EarlySignals'. */
export class ExitStatus extends Error {
  override readonly name = "ExitStatus"
  readonly status: number
  constructor(status: number) {
    super(`exit status ${status}`)
    this.status = status
  }
}

/**
 * A second signal within this time is ignored. Under `npm start` a Ctrl-C arrives twice: from the terminal, and from npm, which forwards it. A
 * person who presses twice takes longer.
 */
const echoMillis = 500

/** How long a stop may take: this default until the configuration is read. */
let hardMillis = 30_000

/** From now on a stop may take so long. */
export const limitStop = (millis: number): void => {
  hardMillis = millis
}

const interruptBySignal = (fiber: Fiber.Fiber<unknown, unknown>) => {
  let first: NodeJS.Signals | undefined
  let firstMillis = 0
  const onSignal = (signal: NodeJS.Signals) => {
    if (first !== undefined) {
      if (performance.now() - firstMillis < echoMillis) return
      EarlySignals.say(`paid-once: second ${signal}: leaving at once`)
      process.exit(EarlySignals.statusOf(signal, 1))
    }
    first = signal
    firstMillis = performance.now()
    Grace.begin(signal)
    // A timer outside of Effect: it must fire when Effect's own shutdown hangs.
    setTimeout(() => {
      EarlySignals.say(`paid-once: still not down after ${hardMillis} ms (SHUTDOWN_HARD_MILLIS): leaving`)
      process.exit(EarlySignals.statusOf(signal, 1))
    }, hardMillis).unref()
    fiber.interruptUnsafe(fiber.id)
  }
  process.on("SIGINT", onSignal)
  process.on("SIGTERM", onSignal)
  EarlySignals.release()
  return () => first
}

/**
 * Runs the process's program. An expected failure prints its message on stderr; only a defect prints its stack.
 */
export const runMain = (program: Effect.Effect<unknown, unknown>): void => {
  Runtime.makeRunMain(({ fiber, teardown }) => {
    const signal = interruptBySignal(fiber)
    fiber.addObserver((exit) => {
      const first = signal()
      if (first !== undefined && Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause)) EarlySignals.leave(first)
      teardown(exit, (code) => process.exit(code))
    })
  })(thenPrinted(Effect.tapCause(program, report)), { disableErrorReporting: true, teardown })
}

/** Until this stream's reader has taken what was written, or has gone. */
const taken = (stream: NodeJS.WriteStream) =>
  Effect.callback<void>((resume) => {
    const done = () => resume(Effect.void)
    if (stream.writableLength === 0) return done()
    stream.once("error", done)
    stream.write("", done)
  })

/** `process.exit` drops what a pipe has not taken, and it takes 64 KiB at once: of a longer result `--json | jq` would see the beginning. A signal ends the wait. */
const thenPrinted = Effect.fnUntraced(function* (program: Effect.Effect<unknown, unknown>) {
  const exit = yield* Effect.exit(program)
  yield* taken(process.stdout)
  yield* taken(process.stderr)
  return yield* exit
})

const teardown: Runtime.Teardown = (exit, onExit) => {
  if (Exit.isSuccess(exit)) return onExit(0)
  const error = Cause.squash(exit.cause)
  onExit(error instanceof ExitStatus ? error.status : 1)
}

/** An outage of the database, or the end of its session, is a defect to most of our code, and no mistake of it. By its tags, as below. */
const isOfLostConnection = (error: unknown) =>
  error instanceof Error &&
  "reason" in error &&
  typeof error.reason === "object" &&
  error.reason !== null &&
  "_tag" in error.reason &&
  error.reason._tag === "ConnectionError"

/** By its tag: `--help` loads no database. */
const isOfStatement = (error: unknown) => error instanceof Error && "_tag" in error && error._tag === "SqlError"

const report = (cause: Cause.Cause<unknown>): Effect.Effect<void> => {
  if (Cause.hasInterruptsOnly(cause)) return Effect.void
  const failure = Cause.findErrorOption(cause)
  const defect = Cause.squash(cause)
  if (Option.isNone(failure) && isOfLostConnection(defect)) {
    return Console.error(`paid-once: the connection to Postgres was lost: ${innermost(defect)}`)
  }
  if (Option.isNone(failure) && isOfStatement(defect)) {
    return Console.error(
      `paid-once: the database says: ${innermost(defect)}; paid-once doctor looks at what is wrong with it`
    )
  }
  if (Option.isSome(failure)) {
    const error = failure.value
    if (error instanceof ExitStatus) return Effect.void
    if (!(error instanceof Error)) return Console.error(`paid-once: ${String(error)}`)
    // Of a statement Effect says that it failed, and the innermost cause says why.
    return Console.error(
      `paid-once: ${isOfStatement(error) ? `the database says: ${innermost(error)}` : error.message}`
    )
  }
  return Console.error(`paid-once: ${Cause.pretty(cause)}`)
}
