/** The building blocks of systematic cases: commands, and the windows in which faults strike. */
import type { Command, CommandName } from "./Case.ts"

export const command = (name: CommandName, a = 0, b = 0): Command => ({ name, a, b })

/** Faults that strike `whom` (see `aim`) after its n-th effect, or end its session before that effect or after it. */
export const faultsAt = (whom: number, window: number): ReadonlyArray<Command> => [
  command("crashAfter", whom, window),
  command("freezeAfter", whom, window),
  command("cut", whom, 2 * window),
  command("cut", whom, 2 * window + 1)
]
