/**
 * One-line mistakes in the service's source, each with the test that fails because of it. A mistake of the failure lab replaces a whole
 * part (`test/lab/mistakes`). These break guarantees inside a part: on a socket, in a transaction's statements, between sessions.
 */
import { adminApiMutants } from "./adminApiMutants.ts"
import { alertMutants } from "./alertMutants.ts"
import { blockingMutants } from "./blockingMutants.ts"
import { brokerMutants } from "./brokerMutants.ts"
import { consoleMutants } from "./consoleMutants.ts"
import { declineMutants } from "./declineMutants.ts"
import { erasureMutants } from "./erasureMutants.ts"
import { fuzzMutants } from "./fuzzMutants.ts"
import { gatewayMutants } from "./gatewayMutants.ts"
import { keysMutants } from "./keysMutants.ts"
import { kafkaMutants } from "./kafkaMutants.ts"
import { embeddedMutants } from "./embeddedMutants.ts"
import { doorMutants } from "./doorMutants.ts"
import { edgeMutants } from "./edgeMutants.ts"
import { bodyMutants } from "./bodyMutants.ts"
import { floodMutants } from "./floodMutants.ts"
import { mailMutants } from "./mailMutants.ts"
import { mainMutants } from "./mainMutants.ts"
import { guardMutants } from "./guardMutants.ts"
import { netOutboxMutants } from "./netMutants.ts"
import { journeyMutants } from "./journeyMutants.ts"
import { inboxMutants } from "./inboxMutants.ts"
import { operationsMutants } from "./operationsMutants.ts"
import { orderMutants } from "./orderMutants.ts"
import { outboxMutants } from "./outboxMutants.ts"
import { commandsMutants } from "./CommandsMutants.ts"
import { demoMutants } from "./demoMutants.ts"
import { drillMutants } from "./drillMutants.ts"
import { pauseMutants } from "./pauseMutants.ts"
import { paymentsMutants } from "./paymentsMutants.ts"
import { platformMutants } from "./platformMutants.ts"
import { doctorMutants } from "./doctorMutants.ts"
import { rebuildMutants } from "./rebuildMutants.ts"
import { replayMutants } from "./replayMutants.ts"
import { refillMutants } from "./refillMutants.ts"
import { rollForwardMutants } from "./rollForwardMutants.ts"
import { reconciliationMutants } from "./reconciliationMutants.ts"
import { releaseMutants } from "./releaseMutants.ts"
import { retentionMutants } from "./retentionMutants.ts"
import { retryingMutants } from "./retryingMutants.ts"
import { rolesMutants } from "./rolesMutants.ts"
import { sessionMutants } from "./sessionMutants.ts"
import { streamMutants } from "./streamMutants.ts"
import { taskMutants } from "./taskMutants.ts"
import { timeZoneMutants } from "./timeZoneMutants.ts"
import { turnMutants } from "./turnMutants.ts"

export interface Mutant {
  /** The mistake, as a name. */
  readonly name: string
  /** The guarantee that the mistake breaks. */
  readonly breaks: string
  /** The file, from the root, and the text that is replaced: it occurs exactly once. */
  readonly file: string
  readonly find: string
  readonly replace: string
  /** The test that fails: its file, and a part of its title. */
  readonly seenBy: { readonly file: string; readonly test: string }
}

const deferredBegin = "src/postgres/fast/DeferredBegin.ts"
const transactionControl = "src/platform/TransactionControl.ts"
const ownership = "src/platform/Ownership.ts"

export const mutants: ReadonlyArray<Mutant> = [
  {
    name: "goes-on-after-refused-begin",
    breaks: "statements after a BEGIN that Postgres refused run outside of any transaction",
    file: deferredBegin,
    find: "isRefused = true",
    replace: "isRefused = false",
    seenBy: { file: "test/postgres/fast/DeferredBegin.test.ts", test: "a BEGIN that Postgres refuses" }
  },
  {
    name: "begin-inside-a-message",
    breaks: "the answer to a BEGIN falls into the middle of another message",
    file: deferredBegin,
    find: "if (!isAtRest || ",
    replace: "if (",
    seenBy: { file: "test/postgres/fast/DeferredBegin.test.ts", test: "half a message that came before BEGIN" }
  },
  {
    name: "swallows-notices",
    breaks: "a notification that arrives with the answer to a BEGIN is lost",
    file: deferredBegin,
    find: "passed.push(bytes.subarray(start, end))",
    replace: "",
    seenBy: { file: "test/postgres/fast/DeferredBegin.test.ts", test: "however its answer is cut" }
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
    file: "src/platform/SingleStatement.ts",
    find: "isUsed = true",
    replace: "isUsed = false",
    seenBy: { file: "test/platform/SingleStatement.test.ts", test: "a second statement is a defect" }
  },
  {
    name: "single-statement-unannounced",
    breaks: "the event of an order whose client hangs up waits for the poll",
    file: "src/platform/SingleStatement.ts",
    find: "return Effect.uninterruptible(",
    replace: "return Effect.suspend(() =>",
    seenBy: { file: "test/platform/SingleStatement.test.ts", test: "an interruption waits for the statement" }
  },
  {
    name: "single-statement-skips-faults",
    breaks: "a fault between a statement and its commit finds the commit done",
    file: "src/platform/SingleStatement.ts",
    find: "faults === off",
    replace: "faults !== undefined",
    seenBy: { file: "test/platform/SingleStatement.test.ts", test: "where faults may be injected" }
  },
  {
    name: "single-statement-always-announces",
    breaks: "a lane is woken for an order whose statement failed",
    file: "src/platform/SingleStatement.ts",
    find: "Exit.isFailure(exit)",
    replace: "exit === undefined",
    seenBy: { file: "test/platform/SingleStatement.test.ts", test: "a statement that fails writes nothing" }
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
    name: "gives-up-at-once",
    breaks: "a transaction that lost against a concurrent one fails, where a second try would have gone through",
    file: "src/platform/Transaction.ts",
    find: "(error: unknown) => isTransient(error) && (",
    replace: "(error: unknown) => !isTransient(error) && (",
    seenBy: { file: "test/outbox/Outbox.test.ts", test: "a serialization failure runs the whole transaction again" }
  },
  {
    name: "fails-twice",
    breaks: "a transaction that failed for good runs once more before its failure is told",
    file: "src/platform/Backoff.ts",
    find: "first.pop() ?? effect",
    replace: "effect",
    seenBy: { file: "test/outbox/Outbox.test.ts", test: "a conflict is tried nine times in all" }
  },
  {
    name: "lost-session-keeps-slots",
    breaks: "a process whose session has ended goes on as the owner of its lanes",
    file: ownership,
    find: "return Effect.andThen(SubscriptionRef.set(held, new Set<number>()), wake.open)",
    replace: "return wake.open",
    seenBy: { file: "test/platform/Ownership.test.ts", test: "a member whose session is ended" }
  },
  {
    name: "hands-over-in-use",
    breaks: "a lane is given up with its batch in flight",
    file: ownership,
    find: "release(session, idle(leaving))",
    replace: "release(session, [...leaving])",
    seenBy: { file: "test/platform/Ownership.test.ts", test: "a slot in use is kept" }
  },
  {
    name: "leaves-with-the-door-open",
    breaks: "a process that stops begins new batches, and waits for ever for those in flight",
    file: ownership,
    find: "      for (const slot of yield* SubscriptionRef.get(held)) leaving.add(slot)\n",
    replace: "",
    seenBy: { file: "test/platform/Ownership.test.ts", test: "a member that leaves waits" }
  },
  {
    name: "claims-what-was-taken",
    breaks: "two members that have a version under two ids at once both apply it",
    file: "src/postgres/fast/OneStatementClaim.ts",
    find: "if (row.moved !== moves.length) {",
    replace: "if (false) {",
    seenBy: { file: "test/inbox/Cursors.test.ts", test: "a version that comes again under another id" }
  },
  {
    name: "tries-the-dead-again",
    breaks: "an event that another member has given up between two transactions of an attempt is retried",
    file: "src/inbox/holds/RetryHold.ts",
    find: `hold === undefined || hold.status !== "retrying"`,
    replace: "hold === undefined",
    seenBy: { file: "test/inbox/HoldRaces.test.ts", test: "an event that another member gives up between" }
  },
  {
    name: "wakes-up-and-charges",
    breaks: "a process that was frozen for half a day charges with a key that the gateway may have forgotten",
    file: "src/application/PayOrder.ts",
    find: "mayRepeat(payment.ageMillis + (yield* sinceRead), keyRetentionMillis)",
    replace: "mayRepeat(payment.ageMillis, keyRetentionMillis)",
    seenBy: { file: "test/application/PayOrder.test.ts", test: "a request that was frozen behind its intent" }
  },
  {
    name: "commits-before-its-standbys",
    breaks: "a service starts whose commits don't wait for the standby that takes over",
    file: "src/postgres/StartChecks.ts",
    find: `row.sync === "local" && row.standbys !== ""`,
    replace: "false",
    seenBy: { file: "test/postgres/StartChecks.test.ts", test: "synchronous_commit = local refuses the start" }
  },
  {
    name: "local-is-never-enough",
    breaks: "a service without any standby does not start",
    file: "src/postgres/StartChecks.ts",
    find: ` && row.standbys !== ""`,
    replace: "",
    seenBy: { file: "test/postgres/StartChecks.test.ts", test: "synchronous_commit = off refuses the start" }
  },
  {
    name: "looks-once-a-minute",
    breaks: "the lanes of a killed process stop for a minute",
    file: ownership,
    find: "const rebalanceMillis = 1_000",
    replace: "const rebalanceMillis = 60_000",
    seenBy: { file: "test/platform/Ownership.test.ts", test: "the slots of a member that was killed" }
  },
  ...orderMutants,
  ...outboxMutants,
  ...gatewayMutants,
  ...consoleMutants,
  ...declineMutants,
  ...guardMutants,
  ...erasureMutants,
  ...fuzzMutants,
  ...operationsMutants,
  ...commandsMutants,
  ...demoMutants,
  ...drillMutants,
  ...adminApiMutants,
  ...alertMutants,
  ...pauseMutants,
  ...paymentsMutants,
  ...platformMutants,
  ...doctorMutants,
  ...rebuildMutants,
  ...replayMutants,
  ...refillMutants,
  ...rollForwardMutants,
  ...reconciliationMutants,
  ...releaseMutants,
  ...retentionMutants,
  ...retryingMutants,
  ...rolesMutants,
  ...sessionMutants,
  ...journeyMutants,
  ...streamMutants,
  ...taskMutants,
  ...netOutboxMutants,
  ...turnMutants,
  ...timeZoneMutants,
  ...inboxMutants,
  ...brokerMutants,
  ...blockingMutants,
  ...mailMutants,
  ...mainMutants,
  ...kafkaMutants,
  ...keysMutants,
  ...embeddedMutants,
  ...doorMutants,
  ...edgeMutants,
  ...bodyMutants,
  ...floodMutants
]
