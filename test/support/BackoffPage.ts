/**
 * docs/backoff.md, printed from the policies: `npm run docs:backoff` writes it, and test/platform/Backoff.test.ts compares it with the code.
 */
import { Effect, Random } from "effect"
import { writeFileSync } from "node:fs"
import * as Path from "node:path"
import * as Backoff from "../../src/platform/Backoff.ts"

/** The policies in the order of the page: the purpose of each, and where it is used. */
const policies: ReadonlyArray<{
  readonly name: string
  readonly about: string
  readonly policy: Backoff.Policy
}> = [
  {
    name: "restart",
    about: "A supervised fiber is started again after a failure or a defect.",
    policy: Backoff.restart()
  },
  {
    name: "transaction",
    about: "A transaction lost against a concurrent one, and is run again as a whole.",
    policy: Backoff.transaction
  },
  { name: "reconnect", about: "The control connection ended, and is opened again.", policy: Backoff.reconnect },
  {
    name: "partitionPause",
    about: "A partition of a topic can't be reached: the next send to it waits.",
    policy: Backoff.partitionPause(Backoff.partitionPauseBaseMillis, Backoff.partitionPauseCapMillis)
  },
  { name: "lane", about: "A lane's turn ended in a defect.", policy: Backoff.lane },
  {
    name: "hold, outbox",
    about: "The broker refused an event (`OUTBOX_RETRY_BASE_MILLIS`). The attempts end at `OUTBOX_MAX_ATTEMPTS`.",
    policy: Backoff.hold(Backoff.outboxHoldBaseMillis)
  },
  {
    name: "hold, inbox",
    about: "A subscriber failed on an event (`INBOX_RETRY_BASE_MILLIS`). The attempts end at `INBOX_MAX_ATTEMPTS`.",
    policy: Backoff.hold(Backoff.inboxHoldBaseMillis)
  },
  {
    name: "inboxTransient",
    about: "The database or a dependency was away while a held event was applied. Such a failure is not an attempt.",
    policy: Backoff.inboxTransient
  },
  {
    name: "embeddedServer",
    about:
      "The embedded Postgres has died. A process looks whether it is back, or starts it where no other process does.",
    policy: Backoff.embeddedServer
  },
  {
    name: "embeddedSlice",
    about: "A consumer failed on a slice of the embedded broker, which comes again.",
    policy: Backoff.embeddedSlice
  },
  {
    name: "kafkaSlice",
    about: "A consumer failed on a slice from Kafka, which comes again.",
    policy: Backoff.kafkaSlice
  },
  { name: "kafkaCommit", about: "Kafka did not answer an offset commit.", policy: Backoff.kafkaCommit },
  {
    name: "swap",
    about: "The swap of a rebuilt projection could not lock its tables. It is given up after fifty attempts.",
    policy: Backoff.swap
  },
  {
    name: "webhook",
    about: "Nobody took a report of the sandbox gateway. It is given up after three days.",
    policy: Backoff.webhook
  },
  {
    name: "staircase of tasks",
    about: "A task failed (`TASK_RETRY_DELAYS`, or the task type's own delays). Behind the last delay it is dead.",
    policy: Backoff.staircase(Backoff.taskDelaysMillis)
  },
  {
    name: "taskOutage",
    about: "A task's run failed because the database was away, or its disk was full. Such a run is not counted.",
    policy: Backoff.taskOutage
  },
  {
    name: "staircase of `payment.recover`",
    about:
      "A payment has no answer yet (`PAYMENT_RECOVER_DELAYS`); the first delay is before the first run. Behind the last one it is `manual`.",
    policy: Backoff.staircase(Backoff.paymentRecoverDelaysMillis)
  }
]

/** Failures that a plot shows. */
const shown = 10
const width = 40

const duration = (millis: number): string => {
  const units: ReadonlyArray<readonly [string, number]> = [
    ["d", 86_400_000],
    ["h", 3_600_000],
    ["min", 60_000],
    ["s", 1_000],
    ["ms", 1]
  ]
  const [unit, size] = units.find(([, size]) => millis >= size) ?? ["ms", 1]
  return `${Number((millis / size).toPrecision(3))} ${unit}`
}

const bounds = (policy: Backoff.Policy, random: number) =>
  Effect.provideService(Backoff.delaysMillis(policy, 64), Random.Random, {
    nextIntUnsafe: () => 0,
    nextDoubleUnsafe: () => random
  })

/** A line for each failure: `·` up to the shortest delay that can be drawn, `█` from there to the longest. */
const plot = Effect.fnUntraced(function* (policy: Backoff.Policy) {
  const least = yield* bounds(policy, 0)
  const most = yield* bounds(policy, 1)
  const longest = Math.max(...most.slice(0, shown))
  // Delays grow by a factor from one failure to the next: a logarithmic axis from a hundredth of the shortest bound shows them all.
  const origin = most[0]! / 2
  const at = (millis: number) =>
    millis <= origin ? 0 : Math.max(1, Math.round((width * Math.log(millis / origin)) / Math.log(longest / origin)))
  const lines = most.slice(0, shown).map((millis, index) => {
    const from = at(least[index]!)
    const bar = "·".repeat(from) + "█".repeat(Math.max(1, at(millis) - from))
    return `${String(index + 1).padStart(2)}  ${bar.padEnd(width)}  ${duration(least[index]!)} … ${duration(millis)}`
  })
  const end =
    most.length < 64
      ? `    no attempt after failure ${most.length + 1}`
      : `    … never more than ${duration(Math.max(...most))}, and never an end`
  return [...lines, end].join("\n")
})

export const page = Effect.gen(function* () {
  const sections = yield* Effect.forEach(policies, ({ about, name, policy }) =>
    Effect.map(plot(policy), (drawn) => `## ${name}\n\n${about}\n\n\`\`\`text\n${drawn}\n\`\`\`\n`)
  )
  return `# Backoff

Every wait that grows from attempt to attempt is a policy of [\`src/platform/Backoff.ts\`](../src/platform/Backoff.ts): a \`Schedule\` with a name. A test refuses any other
code that computes a backoff. This page is printed from the policies by \`npm run docs:backoff\`, and a test compares the two.

**Full jitter** means \`random(0, min(cap, base · 2ⁿ))\`: the random part is the whole delay, so processes that failed at the same moment come
back apart. A **staircase** is a list of delays, each a fifth longer or shorter, with an end.

In the plots the n-th line is the delay after the n-th failure in a row. The delay is drawn evenly from the black part of the bar. The axis is
logarithmic.

${sections.join("\n")}`
})

if (process.argv[1] === import.meta.filename) {
  const path = Path.resolve(import.meta.dirname, "../../docs/backoff.md")
  writeFileSync(path, await Effect.runPromise(page))
}
