/** Mistakes of one line in the drills: what they may break, what they leave, and whether their sums can turn red. */
import type { Mutant } from "./mutants.ts"

const file = "test/e2e/Drills.test.ts"
const ground = "src/cli/drill/Ground.ts"
const leftovers = "src/cli/drill/Leftovers.ts"
const stranded = "src/cli/drill/Stranded.ts"
const breakages = "src/cli/drill/Breakages.ts"
const afterKill = "test/e2e/DrillLeftovers.test.ts"
const killed = { file: afterKill, test: "what any killed drill has left" }
const withoutService = { file: afterKill, test: "drill --mend needs no service" }
const running = { file: afterKill, test: "a drill that runs is left alone" }
const sums = "src/cli/drill/Sums.ts"
const interrupted = { file, test: "Ctrl-C in the middle of any drill" }
const refused = { file, test: "a drill refuses what is no test system" }
const red = { file, test: "a drill fails when an effect is wrong" }

export const drillMutants: ReadonlyArray<Mutant> = [
  {
    name: "drill-leaves-it-broken",
    breaks: "a drill that is interrupted leaves the broker away",
    file: ground,
    find: ": Effect.andThen(mend, teller.tell",
    replace: ": Effect.andThen(Effect.void, teller.tell",
    seenBy: interrupted
  },
  {
    name: "drill-leaves-a-fault-armed",
    breaks: "a drill that is interrupted leaves a fault behind, which strikes somebody later",
    file: ground,
    find: "() => clear",
    replace: "() => Effect.void",
    seenBy: interrupted
  },
  {
    name: "drill-breaks-any-service",
    breaks: "a drill breaks a service that nobody started for it",
    file: ground,
    find: "if ((yield* faults.list).processes.length === 0)",
    replace: "if (false)",
    seenBy: refused
  },
  {
    name: "drill-breaks-any-database",
    breaks: "a drill breaks a database on another machine",
    file: ground,
    find: 'return host === "" || host.startsWith("/") || isLoopback(host)',
    replace: 'return host !== "no"',
    seenBy: refused
  },
  {
    name: "drill-believes-the-ledger",
    breaks: "an effect that was applied twice passes for one",
    file: sums,
    find: "booked === paid",
    replace: "booked > 0",
    seenBy: red
  },
  {
    name: "drill-believes-the-topic",
    breaks: "an event that never reached the topic is not missed",
    file: sums,
    find: "inTopic === changes && waiting === 0",
    replace: "waiting === 0",
    seenBy: red
  },
  {
    name: "drill-believes-the-order",
    breaks: "an event that overtook another one is not seen",
    file: sums,
    find: "outOfOrder === 0",
    replace: "true",
    seenBy: red
  },
  {
    name: "drill-believes-the-marks",
    breaks: "an event that a consumer never applied is not missed",
    file: sums,
    find: "applied === all && marks === all",
    replace: "applied === all",
    seenBy: red
  },
  {
    name: "drill-mends-nothing-of-the-killed",
    breaks: "what a killed drill has broken stays so, and the next drill fails on it",
    file: leftovers,
    find: "yield* Effect.retry(breakage.mend, Breakages.retries)",
    replace: "",
    seenBy: withoutService
  },
  {
    name: "drill-asks-before-it-mends",
    breaks: "a drill refuses a service that a killed drill has broken, instead of mending it",
    file: ground,
    find: "yield* Turn.take({ config, operator, teller })",
    replace: "yield* Effect.andThen(Effect.orDie(client.get(url)), Turn.take({ config, operator, teller }))",
    seenBy: withoutService
  },
  {
    name: "drill-mend-leaves-faults",
    breaks: "a fault that a killed drill has armed strikes somebody later",
    file: leftovers,
    find: "yield* Effect.orDie(clear(point, operator))",
    replace: "",
    seenBy: killed
  },
  {
    name: "drill-mend-leaves-dead-letters",
    breaks: "an event that a killed drill has made a dead letter stays one",
    file: stranded,
    find: "FROM outbox_status\n    WHERE status IN ('retrying', 'dead')",
    replace: "FROM outbox_status\n    WHERE status IN ('retrying')",
    seenBy: killed
  },
  {
    name: "drill-mend-leaves-payments",
    breaks: "a payment that a killed drill has made manual stays so",
    file: stranded,
    find: "settle.settle(paymentId, {}, operator)",
    replace: "Effect.void",
    seenBy: killed
  },
  {
    name: "drill-mend-says-so-too-early",
    breaks: "a mend says that a payment is settled that the gateway has not been asked about yet",
    file: stranded,
    find: "return held.length + open.length === 0 ||",
    replace: "return true ||",
    seenBy: { file: afterKill, test: "a mend that says so has settled the payment" }
  },
  {
    name: "drill-leaves-its-orders-waiting",
    breaks: "a drill that is interrupted leaves a payment without an outcome, and an event that is not sent",
    file: ground,
    find: "Exit.isSuccess(exit) ? Effect.void : tidyUp",
    replace: "Exit.isSuccess(exit) ? Effect.void : Effect.void",
    seenBy: interrupted
  },
  {
    name: "drill-mend-asks-the-frozen",
    breaks: "a frozen dispatcher of a killed drill stays for ever",
    file: "src/cli/drill/ProcessToken.ts",
    find: '"SIGKILL"',
    replace: '"SIGTERM"',
    seenBy: killed
  },
  {
    name: "drill-mend-ends-any-drill",
    breaks: "mending one database ends the dispatcher of a drill on another one",
    file: "src/cli/drill/ProcessToken.ts",
    find: ".includes(entry)",
    replace: ".some((one) => one.startsWith(variable))",
    seenBy: { file: "test/unit/ProcessToken.test.ts", test: "only processes with the token are ended" }
  },
  {
    name: "drill-mends-to-the-default",
    breaks: "the drill oversize takes an operator's own limit away",
    file: breakages,
    find: "(SELECT max_message_bytes FROM ${formerLimit})",
    replace: "DEFAULT",
    seenBy: killed
  },
  {
    name: "drill-mends-over-an-operator",
    breaks: "mending takes a limit away that an operator has set meanwhile",
    file: breakages,
    find: "WHERE topic = '${ordersTopic}' AND max_message_bytes = ${smallMessageBytes}`",
    replace: "WHERE topic = '${ordersTopic}'`",
    seenBy: running
  },
  {
    name: "drill-mend-disturbs-a-drill",
    breaks: "a drill that runs is mended by another person",
    file: "src/cli/drill/Turn.ts",
    find: "({ held }) => held,",
    replace: "() => true,",
    seenBy: running
  },
  {
    name: "doctor-misnames-a-drill",
    breaks: "the doctor takes what a killed drill has broken for faults of Postgres and the topic",
    file: "src/main/Doctor.ts",
    find: "Leftovers.check,",
    replace: "",
    seenBy: killed
  },
  {
    name: "doctor-misses-armed-faults",
    breaks: "the doctor sees no fault that a killed drill has armed",
    file: leftovers,
    find: ", ...(yield* faults).map(({ point }) => inWords(point))]",
    replace: "]",
    seenBy: killed
  },
  {
    name: "doctor-accuses-a-running-drill",
    breaks: "the doctor tells a person to mend under a drill that runs",
    file: leftovers,
    find: "if (yield* isRunning)",
    replace: "if (false)",
    seenBy: running
  }
]
