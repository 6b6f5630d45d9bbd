/** Text that Kafka (UTF-8), Postgres (`text`) and JSON can all hold. */
import { Schema } from "effect"

/** Refuses NUL, which Postgres can't store, and lone surrogates, which have no UTF-8. */
const isStorable = (text: string) =>
  (!text.includes("\u0000") && text.isWellFormed()) || "must not contain a NUL character or a lone surrogate"

/** A name or code given by a client: 1 to `maxLength` characters. */
export const shortText = (maxLength: number) =>
  Schema.String.check(
    Schema.isMinLength(1, { message: "must not be empty" }),
    Schema.isMaxLength(maxLength, { message: `must have at most ${maxLength} characters` }),
    Schema.makeFilter(isStorable)
  )
