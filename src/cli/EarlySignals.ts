/**
 * Handles a signal that comes before the program runs, and knows the exit status after a signal. Node's default would end the process without a word.
 */
import { writeSync } from "node:fs"
import { constants } from "node:os"

/** The commands that run until a signal stops them. */
const lasting = new Set(["serve", "gateway", "demo"])

const words = process.argv.slice(2)
/** The command's name: the first word that is neither a flag nor the level of a log. */
const command = words.find((word, at) => !word.startsWith("-") && words[at - 1] !== "--log-level") ?? "it"

/** Writes one line to stderr, synchronously: the event loop may not run again. */
export const say = (line: string): void => {
  writeSync(2, `${line}\n`)
}

/** The exit status after `signal`, where the command has not finished: `otherwise` for a command that lasts, else 130 (SIGINT) or 143 (SIGTERM). */
export const statusOf = (signal: NodeJS.Signals, otherwise: number): number =>
  lasting.has(command) ? otherwise : 128 + constants.signals[signal]

/** Ends the process after `signal`. A command that lasts is stopped cleanly by it; another one has not finished, and says so. */
export const leave = (signal: NodeJS.Signals): never => {
  if (!lasting.has(command))
    say(`paid-once: ${command} was interrupted by ${signal}: it has not finished, run it again`)
  return process.exit(statusOf(signal, 0))
}

/** From now on a signal ends the process: nothing has begun. */
export const listen = (): void => {
  process.on("SIGINT", leave)
  process.on("SIGTERM", leave)
}

/** From now on another handler takes signals. */
export const release = (): void => {
  process.off("SIGINT", leave)
  process.off("SIGTERM", leave)
}
