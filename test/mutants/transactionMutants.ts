/** Mistakes in how transactions begin, commit and roll back. */
import type { Mutant } from "./mutants.ts"

const deferredBegin = "src/postgres/fast/DeferredBegin.ts"
const deferredBeginTest = "test/postgres/fast/DeferredBegin.test.ts"
const singleStatement = "src/platform/SingleStatement.ts"
const singleStatementTest = "test/platform/SingleStatement.test.ts"
const transactionControl = "src/platform/TransactionControl.ts"

export const transactionMutants: ReadonlyArray<Mutant> = [
  {
    name: "goes-on-after-refused-begin",
    breaks: "statements after a BEGIN that Postgres refused run outside of any transaction",
    file: deferredBegin,
    find: "isRefused = true",
    replace: "isRefused = false",
    seenBy: { file: deferredBeginTest, test: "a BEGIN that Postgres refuses" }
  },
  {
    name: "begin-inside-a-message",
    breaks: "the answer to a BEGIN falls into the middle of another message",
    file: deferredBegin,
    find: "if (!isAtRest || ",
    replace: "if (",
    seenBy: { file: deferredBeginTest, test: "half a message that came before BEGIN" }
  },
  {
    name: "swallows-notices",
    breaks: "a notification that arrives with the answer to a BEGIN is lost",
    file: deferredBegin,
    find: "passed.push(bytes.subarray(start, end))",
    replace: "",
    seenBy: { file: deferredBeginTest, test: "however its answer is cut" }
  },
  {
    name: "failure-commits",
    breaks: "a use case that fails after its first write leaves that write behind",
    file: transactionControl,
    find: `if (Exit.isFailure(exit)) return undo(connection, "ROLLBACK")`,
    replace: "",
    seenBy: { file: "test/platform/TransactionControl.test.ts", test: "a success commits" }
  },
  {
    name: "two-single-statements",
    breaks: "a use case whose second statement fails leaves its first one behind, without any error of the program",
    file: singleStatement,
    find: "isUsed = true",
    replace: "isUsed = false",
    seenBy: { file: singleStatementTest, test: "a second statement is a defect" }
  },
  {
    name: "single-statement-unannounced",
    breaks: "the event of an order whose client hangs up waits for the poll",
    file: singleStatement,
    find: "return Effect.uninterruptible(",
    replace: "return Effect.suspend(() =>",
    seenBy: { file: singleStatementTest, test: "an interruption waits for the statement" }
  },
  {
    name: "single-statement-skips-faults",
    breaks: "a fault between a statement and its commit finds the commit done",
    file: singleStatement,
    find: "faults === off",
    replace: "faults !== undefined",
    seenBy: { file: singleStatementTest, test: "where faults may be injected" }
  },
  {
    name: "single-statement-always-announces",
    breaks: "a lane is woken for an order whose statement failed",
    file: singleStatement,
    find: "Exit.isFailure(exit)",
    replace: "exit === undefined",
    seenBy: { file: singleStatementTest, test: "a statement that fails writes nothing" }
  },
  {
    name: "savepoint-keeps-its-writes",
    breaks: "an inner failure that is recovered from leaves its writes behind",
    file: transactionControl,
    find: "undo(connection, `ROLLBACK TO SAVEPOINT ${name}`)",
    replace: "Effect.void",
    seenBy: { file: "test/platform/TransactionControl.test.ts", test: "a failure of an inner" }
  },
  {
    name: "savepoints-side-by-side",
    breaks: "two inner transactions on one connection end one another",
    file: transactionControl,
    find: "return parent.savepoints.withPermit(",
    replace: "return ((inner) => inner)(",
    seenBy: { file: "test/platform/TransactionControl.test.ts", test: "two concurrent inner transactions don't end" }
  },
  {
    name: "announces-what-was-taken-back",
    breaks: "callbacks of a savepoint run although it was rolled back",
    file: transactionControl,
    find: "callbacks: [],",
    replace: "callbacks: parent?.callbacks ?? [],",
    seenBy: { file: "test/platform/TransactionControl.test.ts", test: "callbacks follow the commit" }
  },
  {
    name: "believes-in-commit",
    breaks: "a COMMIT that Postgres turned into a rollback is reported as a success",
    file: transactionControl,
    find: `.command === "ROLLBACK" ? Effect.fail(rolledBack()) : Effect.void`,
    replace: `.command === "ROLLBACK" ? Effect.void : Effect.void`,
    seenBy: { file: "test/platform/TransactionControl.test.ts", test: "a commit that Postgres turned" }
  },
  {
    name: "leaves-a-transaction-open",
    breaks: "a connection whose COMMIT was cancelled returns to the pool with its transaction, and so with its locks",
    file: transactionControl,
    find: `Effect.tapError(answer, () => undo(connection, "ROLLBACK"))`,
    replace: "answer",
    seenBy: { file: "test/platform/TransactionControl.test.ts", test: "after a COMMIT that failed before" }
  },
  {
    name: "repeats-a-commit",
    breaks: "a transaction whose deferred trigger fails is reported as committed, and its event is nowhere",
    file: transactionControl,
    find: `driver?.query("COMMIT", [], false)`,
    replace: `driver?.query("COMMIT", [])`,
    seenBy: { file: "test/platform/TransactionControl.test.ts", test: "a COMMIT that fails like a stale plan" }
  }
]
