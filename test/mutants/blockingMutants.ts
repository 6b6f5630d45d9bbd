/** Mistakes of one line in the holds that park nothing: an event that can't go on no longer stops its lane or partition. */
import type { Mutant } from "./mutants.ts"

const outbox = "src/outbox/holds/Holds.ts"
const inbox = "src/inbox/holds/Holds.ts"
const outboxTest = "test/outbox/Blocking.test.ts"
const inboxTest = "test/inbox/Blocking.test.ts"

export const blockingMutants: ReadonlyArray<Mutant> = [
  {
    name: "blocking-outbox-passes-a-refusal",
    breaks: "a refused event does not stop its lane, and nobody is told of it",
    file: outbox,
    find: "Effect.die(new Error(`${name(event)} stops its lane until the broker takes it: ${error.message}`))",
    replace: '(void error, void event, Effect.succeed("gone" as const))',
    seenBy: { file: outboxTest, test: "a refused event stops its lane and no other" }
  },
  {
    name: "blocking-inbox-passes-a-record",
    breaks: "a record that can't be applied is lost",
    file: inbox,
    find: 'stop(arrival, reason._tag === "Gap" ? gapText(reason.missing) : reason.error)',
    replace: '(void arrival, void reason, Effect.succeed("retrying" as const))',
    seenBy: { file: inboxTest, test: "an unreadable record stops its partition" }
  },
  {
    name: "blocking-inbox-passes-a-failure",
    breaks: "an event whose handler fails is lost",
    file: inbox,
    find: "(one) => upToFailure(consumer, [one], applyPart)",
    replace: "(one) => Effect.ignoreCause(upToFailure(consumer, [one], applyPart))",
    seenBy: { file: inboxTest, test: "an event that fails stops its partition and no other" }
  },
  {
    name: "blocking-inbox-passes-a-hold",
    breaks: "an event overtakes those that an earlier consumer parked",
    file: inbox,
    find: `Effect.die(
        new Error(\`\${consumer} holds \${aggregateIds.join(", ")}: only a consumer with parking ends its holds\`)
      )`,
    replace: "(void consumer, void aggregateIds, Effect.succeed(new Map()))",
    seenBy: { file: inboxTest, test: "what an earlier consumer parked stops the partition" }
  }
]
