/** A difference between two books, the rule that it breaks, and the contract of the walks that find and mend differences. */
import { type Effect, Schema } from "effect"
import type { Operator } from "../../platform/OperatorAudit.ts"
import type { Transaction } from "../../platform/Transaction.ts"

/** A place where two books don't tell the same. */
export const Difference = Schema.Struct({
  /** The rule that it breaks: a name that never changes. */
  rule: Schema.String,
  /** Names it among the differences of its rule. */
  id: Schema.String,
  orderId: Schema.NullOr(Schema.String),
  paymentId: Schema.NullOr(Schema.String),
  /** The facts of both books, in words. Amounts are as people write them. */
  expected: Schema.String,
  found: Schema.String
}).annotate({ identifier: "Difference" })
export type Difference = typeof Difference.Type

/** A difference with the key of its row, by which its walk looks at it again. */
export interface Found extends Difference {
  readonly key: string
}

/** A rule as a person reads it. */
export type RuleText = {
  readonly name: string
  /** The two books: `payments ↔ orders`. */
  readonly books: string
  /** What a difference means for money. */
  readonly means: string
} & (
  | {
      /** What the repair does. */
      readonly repair: string
      readonly byHand?: undefined
    }
  | {
      readonly repair: undefined
      /** The steps of a person, where no repair helps, with a command or a page of the documentation. */
      readonly byHand: string
    }
)

/** Whether only a person can mend the differences of the rule. */
export const isManual = ({ repair }: RuleText): boolean => repair === undefined

/** The result of a repair. `gone`: the difference was not there any more. `manual`: it is left to a person, and why. */
export const Mended = Schema.Struct({
  outcome: Schema.Literals(["repaired", "gone", "manual"]),
  why: Schema.NullOr(Schema.String)
})
export type Mended = typeof Mended.Type

/** A repair is not possible. Nothing was changed, and a person has to look. */
export class CantMend extends Schema.TaggedError<CantMend>()("CantMend", { reason: Schema.String }) {
  override get message() {
    return this.reason
  }
}

/** A book can't be read now, so nothing is known of its rules. */
export class NotReadable extends Schema.TaggedError<NotReadable>()("NotReadable", { reason: Schema.String }) {
  override get message() {
    return this.reason
  }
}

/** Rows of one statement. A page is some milliseconds of work for Postgres, and some hundred kilobytes here. */
export const pageRows = 2_000

/** A walk through books in the order of one key, for the rules that can be checked on the way. */
export interface Walk {
  /** What it walks through: `orders`. */
  readonly name: string
  /** Those that can be checked in this installation. */
  readonly rules: ReadonlyArray<RuleText>
  /** Rules of walks before it. While they are broken anywhere, its books can't be computed, and nothing is repaired. */
  readonly waitsFor?: ReadonlyArray<string>
  /** Goes through all rows, page by page, each page as of one moment. `page` is told what each one has. Returns how many rows there were. */
  readonly run: (page: (found: ReadonlyArray<Found>) => Effect.Effect<void>) => Effect.Effect<number, NotReadable>
  /** Which of these are there still, as they are now. */
  readonly again: (found: ReadonlyArray<Found>) => Effect.Effect<ReadonlyArray<Found>, NotReadable>
  /**
   * Looks for differences of an order that only a person can mend. Another company is asked at once, and the rows are read in the transaction.
   * The result is the names of their rules.
   */
  readonly doubts?: (
    orderId: string
  ) => Effect.Effect<Effect.Effect<ReadonlyArray<string>, never, Transaction>, NotReadable>
  /**
   * Repairs one: it is looked at again under its locks, and its entry in the audit commits with the repair. `trust` fails, in the transaction,
   * where the repair may not believe the rows.
   */
  readonly mend: (
    found: Found,
    operator: Operator,
    trust: Effect.Effect<void, CantMend, Transaction>
  ) => Effect.Effect<Mended, NotReadable>
}

/** Names a difference among all. */
export const nameOf = ({ id, rule }: Difference): string => `${rule} ${id}`
