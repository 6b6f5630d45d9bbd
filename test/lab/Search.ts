/** Looks for a case that breaks an invariant, and shrinks it to a story. */
import { Arbitrary, Clock, Data, Effect } from "effect"
import { randomOf } from "./Actor.ts"
import { arbitraryOf, type Case } from "./Case.ts"
import type { LabDatabase } from "./LabDatabase.ts"
import type { Invariant, Violation } from "./Oracle.ts"
import { type Parts, realParts } from "./Parts.ts"
import { type Outcome, run } from "./Scheduler.ts"
import type { Mistake } from "./mistakes/Mistake.ts"

/** The parts of one run: the real ones, or with the mistake planted. Made anew each time, for a mistake may keep state. */
export const partsOf = (mistake: Mistake | undefined): Parts => ({ ...realParts, ...mistake?.plant(realParts) })

class Falsified extends Data.TaggedError("Falsified")<{ readonly violation: Violation }> {}

/** A case that breaks, shrunk. */
export interface Found {
  readonly input: Case
  readonly outcome: Outcome
  readonly violation: Violation
  /** Cases run until the first that broke, and until it was shrunk. */
  readonly cases: number
  readonly shrinkCases: number
}

/** Each costs some tens of milliseconds; after so many a story hardly gets shorter. */
const maxShrinks = 500

/**
 * Runs up to `cases` generated cases. `seed` decides all of them. Shrinking keeps to the invariant that broke first: a story
 * must not turn into another one.
 */
export const search = (options: {
  readonly mistake?: Mistake | undefined
  readonly cases: number
  readonly seed: number
  readonly onCase?: (run: number) => void
}): Effect.Effect<Found | undefined, never, LabDatabase> =>
  Effect.gen(function* () {
    let wanted: Invariant | undefined
    let runs = 0
    let cases = 0
    const property = (input: Case) =>
      Effect.gen(function* () {
        const { violation } = yield* run(input, partsOf(options.mistake))
        runs += 1
        options.onCase?.(runs)
        if (violation === undefined || (wanted !== undefined && violation.invariant !== wanted)) return true
        if (wanted === undefined) cases = runs
        wanted = violation.invariant
        return yield* new Falsified({ violation })
      })
    let result: Effect.Success<ReturnType<typeof check>> | undefined
    const check = (batch: number, cases: number) =>
      Arbitrary.checkEffect(arbitraryOf(randomOf(options.seed * 7_919 + batch)), property, {
        runs: cases,
        size: generatedSize,
        seed: `${options.seed}.${batch}`,
        maxShrinks
      })
    for (let batch = 0; batch * casesPerBatch < options.cases && result?._tag !== "Falsified"; batch++) {
      result = yield* check(batch, Math.min(casesPerBatch, options.cases - batch * casesPerBatch))
    }
    if (result?._tag !== "Falsified") return undefined
    const input = tidy(result.shrunkInput)
    const outcome = yield* run(input, partsOf(options.mistake))
    // A switch behind the last step, dropped by tidying, can't matter; should it all the same, the story is told as it was found.
    const told = outcome.violation === undefined ? result.shrunkInput : input
    const final = outcome.violation === undefined ? yield* run(told, partsOf(options.mistake)) : outcome
    if (final.violation === undefined)
      return yield* Effect.die(new Error(`not the same twice: ${JSON.stringify(told)}`))
    return { input: told, outcome: final, violation: final.violation, cases, shrinkCases: runs - cases }
  })

/** Within a batch cases grow from the smallest to the largest: short batches get to the interesting ones soon, and again. */
const casesPerBatch = 40

/** Lists grow with it, up to their own bounds: three quarters of a batch have the longest. */
const generatedSize = 48

/** Without switches that choose what would go on anyway. */
const tidy = (input: Case): Case => ({ ...input, switches: input.switches.filter(({ to }) => to > 0) })

/** Runs an effect and tells how many seconds it took. */
export const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const before = yield* Clock.currentTimeMillis
    const value = yield* effect
    return { value, seconds: ((yield* Clock.currentTimeMillis) - before) / 1_000 }
  })
