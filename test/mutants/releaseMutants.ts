/** Mistakes of one line that only a deploy shows, when each release alone is right; and one that only an erasure shows. */
import type { Mutant } from "./mutants.ts"

const seenBy = { file: "test/e2e/TwoReleases.test.ts", test: "two releases share a database" }

export const releaseMutants: ReadonlyArray<Mutant> = [
  {
    name: "release-renames-its-locks",
    breaks: "the new release owns lanes that the former one owns, too, and each event is sent twice",
    file: "src/platform/OwnershipLocks.ts",
    find: "lockClass(`slot ${group}`)",
    replace: "lockClass(`lane ${group}`)",
    seenBy
  },
  {
    name: "release-hashes-otherwise",
    breaks: "a request that the former release has answered is refused by the new one as another request",
    file: "src/application/Idempotency.ts",
    find: 'createHash("sha256").update(',
    replace: 'createHash("sha256").update("v2").update(',
    seenBy
  },
  {
    name: "log-names-customers",
    breaks: "a customer's id goes to the log, where nobody erases it",
    file: "src/application/PlaceOrder.ts",
    find: "return encodeView(yield* orders.place(change, order.lines))",
    replace:
      "yield* Effect.logInfo(order.customerId)\n        return encodeView(yield* orders.place(change, order.lines))",
    seenBy: { file: "test/e2e/Erasure.test.ts", test: "a customer's id is in the places" }
  }
]
