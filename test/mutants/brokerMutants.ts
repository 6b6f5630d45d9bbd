/** Mistakes in `src/brokers` and `src/postgres`. */
import type { Mutant } from "./mutants.ts"

const patches = "src/brokers/kafkajs/patches"
const patchesTest = "test/brokers/kafkajs/KafkaPatches.test.ts"
const produceTest = "test/brokers/kafkajs/ProduceRequests.test.ts"
const embeddedTest = "test/brokers/embedded/EmbeddedBroker.test.ts"
const lowWaterMarks = "src/postgres/fast/LowWaterMarkRounds.ts"

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
    name: "looks-for-each-leader",
    breaks: "each batch takes twice the CPU in kafkajs",
    file: "src/brokers/kafkajs/KafkaProducer.ts",
    find: "leader?.isConnected() !== true",
    replace: "leader === undefined || Date.now() > 0",
    seenBy: { file: produceTest, test: "after a partition's first batch" }
  },
  {
    name: "keeps-a-lost-leader",
    breaks: "after a broker's restart each partition's next batch goes to the broker that led it before",
    file: "src/brokers/kafkajs/KafkaProducer.ts",
    find: "leader?.isConnected() !== true",
    replace: "leader === undefined",
    seenBy: { file: produceTest, test: "after a partition's first batch" }
  },
  {
    name: "blames-the-access",
    breaks: "when a broker stops, the operator is told to set up TLS or a user",
    file: "src/brokers/kafkajs/KafkaProducer.ts",
    find: 'error.name === "KafkaJSConnectionClosedError"',
    replace: 'error.name === ""',
    seenBy: { file: produceTest, test: "a connection that ends under a batch" }
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
    file: `${patches}/Membership.ts`,
    find: "fetchedBy.get(batch) === this.consumerGroup.offsetManager",
    replace: "fetchedBy.has(batch)",
    seenBy: { file: patchesTest, test: "batches of an older generation are dropped" }
  },
  {
    name: "lets-kafkajs-fall-behind",
    breaks: "kafkajs fetches the same records for ever after its position has gone back",
    file: "src/brokers/kafkajs/KafkaReader.ts",
    find: "payload.resolveOffset(String(next - 1n))",
    replace: "void next",
    seenBy: { file: "test/brokers/kafkajs/KafkaReader.test.ts", test: "kafkajs goes on behind the records" }
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
  },
  {
    name: "floor-over-parked",
    breaks: "events that return from behind a hold are below the lane's low-water mark, and are never sent",
    file: lowWaterMarks,
    find: `{ table: "outbox_parked", comesBack: "true" }`,
    replace: `{ table: "outbox_parked", comesBack: "false" }`,
    seenBy: { file: "test/postgres/fast/LowWaterMarks.test.ts", test: "an event that waits in outbox_parked" }
  },
  {
    name: "floor-over-dead-letters",
    breaks: "a redriven dead letter is below the lane's low-water mark, and is never sent",
    file: lowWaterMarks,
    find: `comesBack: "e.status = 'dead'"`,
    replace: `comesBack: "false"`,
    seenBy: { file: "test/postgres/fast/LowWaterMarks.test.ts", test: "an event that waits in outbox_dead_letters" }
  },
  {
    name: "floor-over-late-committers",
    breaks: "an event that commits late, with a smaller number, is never sent",
    file: lowWaterMarks,
    find: "pg_snapshot_xmin(pg_current_snapshot()) >= ${xid}::text::xid8",
    replace: "pg_snapshot_xmin(pg_current_snapshot()) >= ('3' || left(${xid}::text, 0))::xid8",
    seenBy: {
      file: "test/postgres/fast/LowWaterMarks.test.ts",
      test: "a low-water mark waits for uncommitted transactions with smaller"
    }
  },
  {
    name: "cuts-them-all",
    breaks: "one broker that does not answer cuts off the sends to all the others",
    file: "src/brokers/kafkajs/KafkaProducer.ts",
    find: "if (isApart || !sender.isConnected) {",
    replace: "{",
    seenBy: { file: "test/brokers/kafkajs/KafkaBrokerLeaders.test.ts", test: "a broker that swallows" }
  },
  {
    name: "a-part-for-the-whole",
    breaks: "a partition without a leader stops its whole topic in every process that asks for its metadata",
    file: "src/brokers/kafkajs/patches/Metadata.ts",
    find: "partition.partitionErrorCode === leaderNotAvailable",
    replace: "partition.partitionErrorCode === 0",
    seenBy: { file: "test/brokers/kafkajs/KafkaBrokerLeaders.test.ts", test: "while half of a topic's partitions" }
  },
  {
    name: "steps-over-it-each-time",
    breaks: "in an outage each fetch for the healthy topics reads the whole backlog, and loads Postgres",
    file: lowWaterMarks,
    find: "yield* raiseSecondMarks(lanes, topicsOf, found)",
    replace: "",
    seenBy: { file: "test/postgres/fast/LowWaterMarks.test.ts", test: "a backlog that can't be sent is passed" }
  },
  {
    name: "floor-over-what-comes-back",
    breaks:
      "a refused event that returns into the middle of an unavailable topic's backlog waits until that can be sent",
    file: lowWaterMarks,
    find: "places.filter(({ table }) => table !== queueTable)",
    replace: "places.slice(0, 0)",
    seenBy: { file: "test/postgres/fast/LowWaterMarks.test.ts", test: "a low-water mark that leaves out a topic does" }
  },
  {
    name: "begins-behind-what-it-wants",
    breaks: "a fetch that leaves out no topic begins behind the backlog of a topic that was unavailable",
    file: lowWaterMarks,
    find: "higher.topics.every((topic) => leftOut.includes(topic))",
    replace: "true",
    seenBy: { file: "test/postgres/fast/LowWaterMarks.test.ts", test: "a backlog that can't be sent is passed" }
  },
  {
    name: "raises-what-was-lost",
    breaks: "a lane that was lost and comes back is fetched from behind a row that a crash has put back",
    file: lowWaterMarks,
    find: "    if (forgotten !== before) return\n    if (rows",
    replace: "    if (rows",
    seenBy: { file: "test/postgres/fast/LowWaterMarks.test.ts", test: "a lane that is lost while its low-water" }
  }
]
