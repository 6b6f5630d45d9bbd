/** Mistakes in how a turn of the dispatcher gathers events, and in the requests that carry its batches. */
import type { Mutant } from "./mutants.ts"

const gathering = "src/outbox/Gathering.ts"
const gatheringTest = "test/outbox/Gathering.test.ts"
const requests = "src/brokers/kafkajs/patches/ProduceRequests.ts"
const requestsTest = "test/brokers/kafkajs/ProduceRequests.test.ts"

export const turnMutants: ReadonlyArray<Mutant> = [
  {
    name: "a-turn-for-each-event",
    breaks: "at a steady rate each event costs a fetch, a send and a mark of its own",
    file: gathering,
    find: "sends === 0 ? Effect.void",
    replace: "sends >= 0 ? Effect.void",
    seenBy: { file: gatheringTest, test: "lanes that become ready during a send" }
  },
  {
    name: "fetches-as-fast-as-it-can",
    breaks: "at a steady rate nearly each event has a turn of its own, and costs more CPU",
    file: "src/outbox/Pipeline.ts",
    find: "Effect.andThen(gathering.wait, gathering.apart)",
    replace: "gathering.wait",
    seenBy: { file: gatheringTest, test: "lanes that become ready soon after a fetch" }
  },
  {
    name: "gathers-until-all-are-sent",
    breaks: "one partition without an answer stops all others",
    file: gathering,
    find: "Effect.raceFirst(areSent.await, Effect.sleep(longestMillis))",
    replace: "Effect.asVoid(areSent.await)",
    seenBy: { file: gatheringTest, test: "a send without an answer delays the other partitions" }
  },
  {
    name: "one-error-fails-all-partitions",
    breaks: "a batch that the broker refuses takes the batches of its request with it",
    file: requests,
    find: "answers.filter((answer) => !isExact || answer.partition === partition)",
    replace: "answers",
    seenBy: { file: requestsTest, test: "batches of several partitions share a request" }
  },
  {
    name: "confirms-what-was-not-named",
    breaks: "a batch that the broker does not name is taken for stored",
    file: requests,
    find: "answers.length === parts.length &&",
    replace: "",
    seenBy: { file: requestsTest, test: "a response that lacks a partition" }
  },
  {
    name: "writes-what-was-given-up",
    breaks: "a batch is written after its send was given up, behind a newer one",
    file: requests,
    find: "return !sending.isGivenUp",
    replace: "return true",
    seenBy: { file: requestsTest, test: "a batch that was given up is not written" }
  }
]
