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
import { transactionMutants } from "./transactionMutants.ts"
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

const ownership = "src/platform/Ownership.ts"

export const mutants: ReadonlyArray<Mutant> = [
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
  ...transactionMutants,
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
