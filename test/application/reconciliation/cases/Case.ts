/** A way in which the books are made to differ by hand. */
import type { Effect, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import type { AgreeingBooks, layer } from "../Books.ts"

export type Break = (
  books: AgreeingBooks,
  sql: SqlClient.SqlClient
) => Effect.Effect<unknown, unknown, Layer.Success<typeof layer>>

export interface Case {
  /** What was done by hand. */
  readonly of: string
  readonly rule: string
  /** Other rules that it breaks, too. */
  readonly also?: ReadonlyArray<string>
  readonly broken: Break
  /** Who repairs it. `person`: it stays, and says so. */
  readonly by: "use case" | "person"
  /** After the repair, once what it began has ended. */
  readonly afterwards?: Break
}

/** Damages of which a repair would make a third one. A person hears why none is made. */
export interface Refusal {
  readonly of: string
  readonly broken: Break
  readonly rule: string
  readonly why: RegExp
}
