/** Mistakes for the fuzzer: odd input shows the first, the document the second, and the books the third. */
import type { Mutant } from "./mutants.ts"

const fuzzer = {
  file: "test/fuzz/Fuzzer.test.ts",
  test: "whatever a minute of hostile input and faults does, every answer"
}

export const fuzzMutants: ReadonlyArray<Mutant> = [
  {
    name: "takes-any-text",
    breaks: "a NUL or half a character from a client is a 500, and no 400",
    file: "src/domain/Text.ts",
    find: `(!text.includes("\\u0000") && text.isWellFormed()) ||`,
    replace: "true ||",
    seenBy: fuzzer
  },
  {
    name: "answers-beside-the-document",
    breaks: "a client that was generated from the document can't read an answer",
    file: "src/http/Handlers.ts",
    find: "JSON.stringify({ received: true })",
    replace: `JSON.stringify({ received: "yes" })`,
    seenBy: fuzzer
  },
  {
    name: "revenue-of-the-last-payment",
    breaks: "a day's revenue is what was paid last, and not the sum of all payments",
    file: "src/application/subscribers/Analytics.ts",
    find: "amount_minor = daily.amount_minor + excluded.amount_minor",
    replace: "amount_minor = excluded.amount_minor",
    seenBy: fuzzer
  }
]
