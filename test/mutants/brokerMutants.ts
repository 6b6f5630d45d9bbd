/** Mistakes in `src/brokers` and `src/postgres`. */
import type { Mutant } from "./mutants.ts"

const patches = "src/brokers/kafkajs/patches"
const patchesTest = "test/brokers/kafkajs/KafkaPatches.test.ts"
const embeddedTest = "test/brokers/embedded/EmbeddedBroker.test.ts"

export const brokerMutants: ReadonlyArray<Mutant> = [
  {
    name: "fetches-without-membership",
    breaks: "a consumer whose rejoin failed reads partitions of other members for ever",
    file: `${patches}/Membership.ts`,
    find: "Promise.reject(createErrorFromCode(unknownMemberId))",
    replace: "Promise.resolve()",
    seenBy: { file: patchesTest, test: "a consumer that its group has forgotten" }
  },
  {
    name: "asks-disconnected-brokers-first",
    breaks: "a request that any broker can answer waits for brokers that are down before it reaches a connected one",
    file: `${patches}/Metadata.ts`,
    find: "Number(other.isConnected()) - Number(one.isConnected())",
    replace: "Number(one.isConnected()) - Number(other.isConnected())",
    seenBy: { file: patchesTest, test: "a question that any broker can answer" }
  },
  {
    name: "takes-batches-of-old-generations",
    breaks: "while leaders move, a consumer skips records between the committed offset and a late batch",
    file: "src/brokers/kafkajs/KafkaFetches.ts",
    find: "return stale.size > 0",
    replace: "return false",
    seenBy: { file: "test/brokers/kafkajs/KafkaBrokerLeaders.test.ts", test: "while leaders move" }
  },
  {
    name: "commits-for-lost-readers",
    breaks: "a member commits offsets of a partition that another member owns",
    file: "src/brokers/kafkajs/KafkaOffsets.ts",
    find: "new Map([...noted].filter(([owner]) => !owner.isLost()))",
    replace: "new Map(noted)",
    seenBy: { file: "test/brokers/kafkajs/KafkaOffsets.test.ts", test: "no offset is committed for a reader" }
  },
  {
    name: "commits-without-fencing",
    breaks: "an owner that was frozen moves the offset of the partition's new owner",
    file: "src/brokers/embedded/EmbeddedLog.ts",
    find: " AND partition = ${partition} AND generation = ${generation}",
    replace: " AND partition = ${partition} AND ${generation}::int8 > 0",
    seenBy: { file: embeddedTest, test: "a late commit of a zombie changes nothing" }
  },
  {
    name: "moves-offsets-back",
    breaks: "a commit that arrives late delivers a slice a second time to its group",
    file: "src/brokers/embedded/EmbeddedLog.ts",
    find: "greatest(next_offset, ${nextOffset})",
    replace: "${nextOffset}",
    seenBy: { file: embeddedTest, test: "a commit never moves the group's offset back" }
  },
  {
    name: "migrates-an-older-schema",
    breaks: "the baseline is applied over the tables of an older version",
    file: "src/postgres/Migrations.ts",
    find: "oldest.id < first[0]",
    replace: "oldest.id < 0",
    seenBy: { file: "test/postgres/Migrations.test.ts", test: "the schema of an older version" }
  }
]
