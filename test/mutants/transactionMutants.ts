/** Mistakes in how transactions begin, commit and roll back. */
import type { Mutant } from "./mutants.ts"

const deferredBegin = "src/postgres/fast/DeferredBegin.ts"
const deferredBeginTest = "test/postgres/fast/DeferredBegin.test.ts"
const joinedCommit = "src/postgres/fast/JoinedCommit.ts"
const joinedCommitTest = "test/postgres/fast/JoinedCommit.test.ts"
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
    file: "src/postgres/fast/Messages.ts",
    find: "if (kept(bytes[start]!)) passed.push(bytes.subarray(start, end))",
    replace: "kept(bytes[start]!)",
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
    name: "last-statement-ends-a-savepoint",
    breaks: "a use case inside of another one commits what the other one would have rolled back",
    file: singleStatement,
    find: "isJoined && depth === 0",
    replace: "isJoined",
    seenBy: { file: joinedCommitTest, test: "in a savepoint it does not commit" }
  },
  {
    name: "statement-after-the-last",
    breaks: "a write after the COMMIT stands alone, and stays if the use case fails",
    file: singleStatement,
    find: "around.open = false",
    replace: "",
    seenBy: { file: joinedCommitTest, test: "no statement comes after the last one" }
  },
  {
    name: "last-statement-interrupted",
    breaks: "a client that hangs up takes back a payment's outcome",
    file: singleStatement,
    find: ".pipe(Effect.uninterruptible)",
    replace: "",
    seenBy: { file: joinedCommitTest, test: "an interruption waits for its answer" }
  },
  {
    name: "commit-after-a-failure",
    breaks: "COMMIT follows a statement that failed, and the driver gets two answers for one question",
    file: joinedCommit,
    find: "chunk.subarray(0, -Messages.sync.length), commit",
    replace: "chunk, commit",
    seenBy: { file: joinedCommitTest, test: "only the packet after an announcement" }
  },
  {
    name: "commit-answered-twice",
    breaks: "the driver gets the answer to a COMMIT that it never asked, and gives the connection up",
    file: joinedCommit,
    find: "if (isComplete && ofCommit.has(type)) return false",
    replace: "",
    seenBy: { file: joinedCommitTest, test: "however its answer is cut" }
  },
  {
    name: "promise-inside-a-message",
    breaks: "the answer to an announcement falls into the middle of another message",
    file: joinedCommit,
    find: "if (isAtRest && ",
    replace: "if (",
    seenBy: { file: joinedCommitTest, test: "half a message that came before makes" }
  },
  {
    name: "commit-unannounced",
    breaks: "an event that was committed with the last statement waits for the poll where code behind it fails",
    file: transactionControl,
    find: "if (opened.isCommitted) return undefined",
    replace: "if (opened.isCommitted && Exit.isSuccess(exit)) return undefined\nopened.isCommitted = false",
    seenBy: { file: joinedCommitTest, test: "code that fails behind it" }
  }
]
