/** Mistakes of one line in the erasure of a customer. */
import type { Mutant } from "./mutants.ts"

const tests = "test/application/erasure/EraseCustomer.test.ts"

export const erasureMutants: ReadonlyArray<Mutant> = [
  {
    name: "erases-before-the-mail-is-asked-for",
    breaks: "a customer is erased while a consumer has yet to ask for his mail, which brings the id back",
    file: "src/application/erasure/UnderWay.ts",
    find: "o.version) AS missing",
    replace: "0) AS missing",
    seenBy: { file: tests, test: "each thing under way stops it" }
  },
  {
    name: "erases-what-it-has-not-looked-at",
    breaks: "an order that was placed during the run is erased, and its events bring the id back",
    file: "src/application/erasure/EraseCustomer.ts",
    find: "ids.length > 0 && underWay.length === 0",
    replace: "ids.length > 0",
    seenBy: { file: tests, test: "a customer with many orders is erased in parts" }
  },
  {
    name: "one-erased-customer",
    breaks: "all orders of a customer get one id, which tells that they were one customer's",
    file: "src/application/erasure/Places.ts",
    find: "'erased-' || id WHERE",
    replace: "'erased' WHERE",
    seenBy: { file: tests, test: "each order gets an id of its own" }
  },
  {
    name: "audits-no-reason",
    breaks: "the audit of an erasure has no reason",
    file: "src/platform/OperatorAudit.ts",
    find: "${entry.reason}, ${entry.subject}, id,",
    replace: "'none', ${entry.subject}, id,",
    seenBy: { file: tests, test: "each order gets an id of its own" }
  },
  {
    name: "keeps-the-address-in-a-sent-mail",
    breaks: "the address of an erased customer stays in the tasks of his mails",
    file: "src/application/erasure/Places.ts",
    find: "'{to}'",
    replace: "'{formerly}'",
    seenBy: { file: tests, test: "each order gets an id of its own" }
  },
  {
    name: "refill-brings-the-customer-back",
    breaks: "an erased customer's id is in the archive again, once it is filled from the topic",
    file: "src/operations/refill/Refill.ts",
    find: "erased.has(event.aggregateId) ?",
    replace: "false ?",
    seenBy: { file: "test/operations/Refill.test.ts", test: "what the archive has lost comes back without" }
  },
  {
    name: "refill-overtakes-an-erasure",
    breaks: "a refill beside an erasure puts the customer's id back behind it",
    file: "src/application/erasure/Places.ts",
    find: "ORDER BY id FOR KEY SHARE",
    replace: "ORDER BY id",
    seenBy: { file: tests, test: "a refill of the archive waits for an erasure" }
  }
]
