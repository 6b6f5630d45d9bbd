/**
 * Makes a story shorter than Arbitrary's shrinking leaves it. Arbitrary drops a command, and the case then holds: with fewer steps before
 * them the switches strike too late. Here they move along.
 */
import { Clock, Effect } from "effect"
import type { Case, Switch } from "./Case.ts"

/** The most cases run for one story: it is searched for once and read often. */
const maxRuns = 600
/** The time limit, since a case that hangs costs seconds. */
const maxSeconds = 60
/** The most choices that one command adds to a case. */
const maxShift = 30

const without = <A>(all: ReadonlyArray<A>, ...indices: ReadonlyArray<number>) =>
  all.filter((_, index) => !indices.includes(index))

/** The switches from the `from`-th on, moved `by` choices earlier. */
const earlier = (switches: ReadonlyArray<Switch>, from: number, by: number): ReadonlyArray<Switch> =>
  switches.map((one, index) => (index < from ? one : { ...one, at: Math.max(0, one.at - by) }))

/** Smaller cases, the most promising first. */
function* smaller(input: Case): Generator<Case> {
  const { commands, switches } = input
  for (let index = switches.length - 1; index >= 0; index--) yield { ...input, switches: without(switches, index) }
  for (let index = commands.length - 1; index >= 0; index--) {
    const fewer = { ...input, commands: without(commands, index) }
    for (let by = 0; by <= (switches.length === 0 ? 0 : maxShift); by++) {
      // All of them, or the last one alone, which mostly is the one that matters.
      for (const from of new Set([0, Math.max(0, switches.length - 1)]))
        yield { ...fewer, switches: earlier(switches, from, by) }
    }
  }
  for (let one = 0; one < commands.length; one++) {
    for (let other = 0; other < one; other++) yield { ...input, commands: without(commands, one, other) }
  }
  // A crash or a freeze is moved towards the commands before it: the earliest place that still breaks.
  for (let index = 0; index < commands.length; index++) {
    const command = commands[index]!
    const replaced = (changed: typeof command) => ({
      ...input,
      commands: commands.map((one, at) => (at === index ? changed : one))
    })
    // A `place` that acts as a decline, since all orders are placed, is replaced by `decline`.
    if (command.name === "place" && index > 0) {
      yield replaced({ ...command, name: "decline" })
      yield replaced({ ...command, name: "decline", b: 0 })
    }
    if (command.a > 0) yield replaced({ ...command, a: 0 })
    for (const b of new Set([0, 1, Math.floor(command.b / 2), command.b - 1]))
      if (b >= 0 && b < command.b) yield replaced({ ...command, b })
  }
  if (input.seed > 0) yield { ...input, seed: 0 }
}

/** How many lines the story has if the case still breaks the same way; undefined if it does not. */
export type Breaks = (input: Case) => Effect.Effect<number | undefined>

const isSmaller = (one: Case, lines: number, than: Case, thanLines: number): boolean =>
  one.commands.length !== than.commands.length
    ? one.commands.length < than.commands.length
    : one.switches.length !== than.switches.length
      ? one.switches.length < than.switches.length
      : lines <= thanLines

/** Takes the first smaller case that still breaks, again and again, until none does or a limit is reached. */
export const shrink = (input: Case, breaks: Breaks): Effect.Effect<Case> =>
  Effect.gen(function* () {
    let best = input
    // A case that holds once it is tidied stays as it is.
    let lines = (yield* breaks(input)) ?? Number.MAX_SAFE_INTEGER
    let runs = 0
    const until = (yield* Clock.currentTimeMillis) + maxSeconds * 1_000
    for (let found = true; found && runs < maxRuns;) {
      found = false
      for (const candidate of smaller(best)) {
        if (runs++ >= maxRuns || (yield* Clock.currentTimeMillis) > until) return best
        const length = yield* breaks(candidate)
        if (length === undefined || !isSmaller(candidate, length, best, lines)) continue
        best = candidate
        lines = length
        found = true
        break
      }
    }
    return best
  })
