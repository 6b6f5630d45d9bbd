/** A planted mistake: a small replacement for one part of the service, and what a reader should know about it. */
import type { Parts } from "../Parts.ts"

export interface Mistake {
  /** As in tokens and file names: `dual-write`. */
  readonly name: string
  /** The mistake in the code, in a sentence or two. */
  readonly what: string
  /** Why it looks right. */
  readonly why: string
  /** The rule that prevents it, and the file that implements the rule. */
  readonly rule: string
  readonly read: string
  /** The parts that replace real ones. Called once for each run. */
  readonly plant: (real: Parts) => Partial<Parts>
}
