/** Mistakes of one line where the service is put together: a layer that somebody forgot. */
import type { Mutant } from "./mutants.ts"

const signals = "test/e2e/Signals.test.ts"
const seenBy = { file: "test/main/Fibers.test.ts", test: "a process with the roles" }

export const mainMutants: ReadonlyArray<Mutant> = [
  {
    name: "loads-every-command",
    breaks: "help takes as long as a start of the service",
    file: "src/cli/PaidOnce.ts",
    find: "asksForAll || words.includes(name)",
    replace: "true",
    seenBy: { file: "test/main/Loading.test.ts", test: "help and wrong usage" }
  },
  {
    name: "warm-up-that-fails-a-start",
    breaks: "a dispatcher doesn't start while its broker is down",
    file: "src/postgres/fast/WarmUp.ts",
    find: 'Effect.catchCause(part, (cause) => Effect.logDebug("warming up was cut short", cause))',
    replace: "Effect.orDie(part)",
    seenBy: { file: "test/postgres/fast/WarmUp.test.ts", test: "a database and a broker that fail" }
  },
  {
    name: "main-without-maintenance",
    breaks: "no process cleans up, whatever its roles are",
    file: "src/main.ts",
    find: `    Layer.provideMerge(where(["maintenance"], Maintenance.layer)),\n`,
    replace: "",
    seenBy
  },
  {
    name: "gateway-believes-gateway-url",
    breaks: "the gateway doesn't start in a shell that has the service's GATEWAY_URL",
    file: "src/main.ts",
    find: "database({ ...config, gatewayUrl: undefined })",
    replace: "database(config)",
    seenBy: { file: "test/e2e/LeastPrivilege.test.ts", test: "the gateway alone has its books made by the owner" }
  },
  {
    name: "main-without-stranded-payments",
    breaks: "a payment whose recovery died stays as it is for ever",
    file: "src/main/Tasks.ts",
    find: "Layer.merge(TaskWorkers.layer<HandlerNeeds>(handlers(config)), StrandedPayments.layer)",
    replace: "TaskWorkers.layer<HandlerNeeds>(handlers(config))",
    seenBy
  },
  {
    name: "main-without-payment-metrics",
    breaks: "nobody is alarmed by payments that wait for a person",
    file: "src/main/UseCases.ts",
    find: "    PaymentMetrics.layer,\n",
    replace: "",
    seenBy
  },
  {
    name: "main-without-inbox-metrics",
    breaks: "nobody sees how far the consumers are behind",
    file: "src/main/Inbox.ts",
    find: "  InboxMetrics.layer(subscribers),\n",
    replace: "",
    seenBy
  },
  {
    name: "dispatcher-without-archive-note",
    breaks: "each event from a time without the archive is a difference once it is on again",
    file: "src/Dispatching.ts",
    find: "  ArchiveNote.layer,\n",
    replace: "",
    seenBy: { file: seenBy.file, test: "a dispatcher without the archive notes" }
  },
  {
    name: "dispatcher-without-raising",
    breaks: "an old reader of the queue makes each fetch slower",
    file: "src/Dispatching.ts",
    find: "  LowWaterMarks.layerRaising,\n",
    replace: "",
    seenBy
  },
  {
    name: "leaves-with-a-full-pipe",
    breaks: "of a long result `--json | jq` reads the first 64 KiB",
    file: "src/cli/Process.ts",
    find: "  yield* taken(process.stdout)\n",
    replace: "",
    seenBy: { file: "test/cli/Process.test.ts", test: "a reader gets all" }
  },
  {
    name: "interrupted-is-success",
    breaks: "roll-forward is interrupted, and the service starts behind its topic",
    file: "src/cli/Process.ts",
    find: "EarlySignals.leave(first)",
    replace: "process.exit(0)",
    seenBy: { file: signals, test: "an interrupted command exits with 130 or 143" }
  },
  {
    name: "interrupted-early-is-success",
    breaks: "a command that a signal ends at its start passes for done",
    file: "src/cli/EarlySignals.ts",
    find: "process.exit(statusOf(signal, 0))",
    replace: "process.exit(0)",
    seenBy: { file: signals, test: "a signal before anything has begun" }
  }
]
