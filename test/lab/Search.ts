/** Searches for a case that breaks an invariant, and shrinks it. */
import { Arbitrary, Clock, Data, Effect } from "effect"
import { randomOf } from "./Actor.ts"
import { arbitraryOf, type Case } from "./Case.ts"
import { LabDatabase } from "./LabDatabase.ts"
import type { Invariant, Violation } from "./Oracle.ts"
import { type Parts, realParts } from "./Parts.ts"
import { type Outcome, run } from "./Scheduler.ts"
import { shrink } from "./Shrink.ts"
import { systematic } from "./Systematic.ts"
import type { Mistake } from "./mistakes/Mistake.ts"

/** The parts of one run: the real ones, or with the mistake planted. Built for each run, since a mistake may keep state. */
export const partsOf = (mistake: Mistake | undefined): Parts => ({ ...realParts, ...mistake?.plant(realParts) })

class Falsified extends Data.TaggedError("Falsified")<{ readonly violation: Violation }> {}

/** A case that breaks an invariant, shrunk. */
export interface Found {
  readonly input: Case
  readonly outcome: Outcome
  readonly violation: Violation
  /** Cases run until the first violation, and until it was shrunk. */
  readonly cases: number
  readonly shrinkCases: number
}

/** The time limit of each of the two ways of shrinking. A case that hangs costs seconds, and shrinking it must not take hours. */
const maxShrinkSeconds = 60

/** Each attempt costs tens of milliseconds, and after this many a story hardly gets shorter. */
const maxShrinks = 500

/**
 * Runs up to `cases` cases: the systematic ones, then generated ones that `seed` decides. Shrinking keeps only cases that break the same
 * invariant, so that a story does not turn into another one.
 */
export const search = (options: {
  readonly mistake?: Mistake | undefined
  readonly cases: number
  readonly seed: number
  readonly onCase?: (run: number) => void
  /** Called at once, before shrinking, which may take long. */
  readonly onBroken?: (input: Case, violation: Violation) => void
}): Effect.Effect<Found | undefined, never, LabDatabase> =>
  Effect.gen(function* () {
    const database = yield* LabDatabase
    let wanted: Invariant | undefined
    let until: number | undefined
    let runs = 0
    let cases = 0
    const property = (input: Case) =>
      Effect.gen(function* () {
        // The time for shrinking is over: no smaller case is accepted.
        if (until !== undefined && (yield* Clock.currentTimeMillis) > until) return true
        const { violation } = yield* run(input, partsOf(options.mistake))
        runs += 1
        options.onCase?.(runs)
        if (violation === undefined || (wanted !== undefined && violation.invariant !== wanted)) return true
        if (wanted === undefined) {
          cases = runs
          until = (yield* Clock.currentTimeMillis) + maxShrinkSeconds * 1_000
          options.onBroken?.(input, violation)
        }
        wanted = violation.invariant
        return yield* new Falsified({ violation })
      })
    const check = (number: number) =>
      // One run at a time, since each case draws its own kinds of commands.
      Arbitrary.checkEffect(arbitraryOf(randomOf(options.seed * 7_919 + number)), property, {
        runs: 1,
        size: sizes[number % sizes.length]!,
        seed: `${options.seed}.${number}`,
        maxShrinks
      })
    let broken: Case | undefined
    for (const input of systematic.slice(0, options.cases)) {
      if (!(yield* Effect.orElseSucceed(property(input), () => false))) {
        broken = input
        break
      }
    }
    for (let number = 0; number + systematic.length < options.cases && broken === undefined; number++) {
      const result = yield* check(number)
      if (result._tag === "Falsified") broken = tidy(result.shrunkInput)
    }
    if (broken === undefined) return undefined
    const breaks = (candidate: Case) =>
      Effect.provideService(
        Effect.map(run(candidate, partsOf(options.mistake)), ({ story, violation }) => {
          runs += 1
          return violation?.invariant === wanted ? story.length : undefined
        }),
        LabDatabase,
        database
      )
    const input = yield* shrink(broken, breaks)
    const outcome = yield* run(input, partsOf(options.mistake))
    if (outcome.violation === undefined)
      return yield* Effect.die(new Error(`not the same twice: ${JSON.stringify(input)}`))
    return { input, outcome, violation: outcome.violation, cases, shrinkCases: runs - cases }
  })

/** Bounds of the lists of a case: short cases are cheap, and long ones reach more states. */
const sizes = [4, 8, 16, 48, 48] as const

/** Without the switches that choose the default. */
const tidy = (input: Case): Case => ({ ...input, switches: input.switches.filter(({ to }) => to > 0) })

/** Runs an effect and measures its seconds. */
export const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const before = yield* Clock.currentTimeMillis
    const value = yield* effect
    return { value, seconds: ((yield* Clock.currentTimeMillis) - before) / 1_000 }
  })
