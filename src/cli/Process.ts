/**
 * How the process ends. The first SIGINT or SIGTERM closes every scope in order and exits 0. A second one, or the hard limit, exits 1 at once; the
 * next start recovers.
 */
import { Cause, Console, Effect, Exit, type Fiber, Option, Runtime } from "effect"
import { writeSync } from "node:fs"
import * as Grace from "../platform/Grace.ts"
import * as EarlySignals from "./EarlySignals.ts"

/** The exit status of a command: 0 success, 1 problems found, 2 wrong usage. */
export class ExitStatus extends Error {
  override readonly name = "ExitStatus"
  readonly status: number
  constructor(status: number) {
    super(`exit status ${status}`)
    this.status = status
  }
}

/** Writes one line to stderr, synchronously: the event loop may not run again. */
const say = (line: string) => {
  writeSync(2, `${line}\n`)
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
  let stopping = false
  let firstMillis = 0
  const onSignal = (signal: NodeJS.Signals) => {
    if (stopping) {
      if (performance.now() - firstMillis < echoMillis) return
      say(`paid-once: second ${signal}: leaving at once`)
      process.exit(1)
    }
    stopping = true
    firstMillis = performance.now()
    Grace.begin(signal)
    // A timer outside of Effect: it must fire when Effect's own shutdown hangs.
    setTimeout(() => {
      say(`paid-once: still not down after ${hardMillis} ms (SHUTDOWN_HARD_MILLIS): leaving`)
      process.exit(1)
    }, hardMillis).unref()
    fiber.interruptUnsafe(fiber.id)
  }
  process.on("SIGINT", onSignal)
  process.on("SIGTERM", onSignal)
  EarlySignals.release()
  return () => stopping
}

/**
 * Runs the process's program. An expected failure prints its message on stderr; only a defect prints its stack.
 */
export const runMain = (program: Effect.Effect<unknown, unknown>): void => {
  Runtime.makeRunMain(({ fiber, teardown }) => {
    const wasStopped = interruptBySignal(fiber)
    fiber.addObserver((exit) => teardown(exit, (code) => process.exit(wasStopped() && isQuiet(exit) ? 0 : code)))
  })(Effect.tapCause(program, report), { disableErrorReporting: true, teardown })
}

const isQuiet = (exit: Exit.Exit<unknown, unknown>) => Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)

const teardown: Runtime.Teardown = (exit, onExit) => {
  if (Exit.isSuccess(exit)) return onExit(0)
  const error = Cause.squash(exit.cause)
  onExit(error instanceof ExitStatus ? error.status : 1)
}

const report = (cause: Cause.Cause<unknown>): Effect.Effect<void> => {
  if (Cause.hasInterruptsOnly(cause)) return Effect.void
  const failure = Cause.findErrorOption(cause)
  if (Option.isSome(failure)) {
    const error = failure.value
    if (error instanceof ExitStatus) return Effect.void
    return Console.error(`paid-once: ${error instanceof Error ? error.message : String(error)}`)
  }
  return Console.error(`paid-once: ${Cause.pretty(cause)}`)
}
