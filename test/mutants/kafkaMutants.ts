/** Mistakes in Kafka's access, and in how its outages are told. */
import type { Mutant } from "./mutants.ts"

const outages = "src/operations/OutageLog.ts"
const access = "src/brokers/kafkajs/KafkaAccess.ts"
const accessTest = "test/brokers/kafkajs/KafkaAccess.test.ts"
const outagesTest = "test/operations/OutageLog.test.ts"

const progressTest = "test/brokers/kafkajs/KafkaProgress.test.ts"
const brokerTest = "test/brokers/kafkajs/KafkaBroker.test.ts"

export const kafkaMutants: ReadonlyArray<Mutant> = [
  {
    name: "connects-for-each-look",
    breaks: "each page that shows the lag opens a connection for each consumer, again and again",
    file: "src/brokers/kafkajs/KafkaAdmin.ts",
    find: "Effect.onError(() => discard)",
    replace: "Effect.ensuring(discard)",
    seenBy: { file: progressTest, test: "is asked for through one client" }
  },
  {
    name: "keeps-a-dead-client",
    breaks: "one look after a broken connection shows no lag",
    file: "src/brokers/kafkajs/KafkaAdmin.ts",
    find: "Effect.retry({ times: 1 })",
    replace: "Effect.retry({ times: 0 })",
    seenBy: { file: progressTest, test: "is asked for through one client" }
  },
  {
    name: "waits-for-transactions",
    breaks: "a foreign transaction that stays open stops all consumers",
    file: "src/brokers/kafkajs/KafkaConsumer.ts",
    find: "readUncommitted: true",
    replace: "readUncommitted: false",
    seenBy: { file: brokerTest, test: "a foreign transaction that stays open" }
  },
  {
    name: "keeps-batches-packed",
    breaks: "a new topic keeps what consumers can't unpack",
    file: "src/brokers/kafkajs/KafkaTopicConfig.ts",
    find: 'value: "uncompressed" }',
    replace: 'value: "producer" }',
    seenBy: { file: brokerTest, test: "a new topic keeps no foreign batch compressed" }
  },
  {
    name: "unpacks-without-end",
    breaks: "a megabyte of gzip takes a gigabyte of memory",
    file: "src/brokers/kafkajs/patches/Compression.ts",
    find: ", { maxOutputLength: maxUnpackedBytes }",
    replace: "",
    seenBy: { file: "test/brokers/kafkajs/Compression.test.ts", test: "a batch of gzip is unpacked up to a limit" }
  },
  {
    name: "tells-each-failure",
    breaks: "an unreachable broker writes a line for each attempt of each loop",
    file: outages,
    find: "isDue || isNews ? [...left",
    replace: "isDue || !isNews ? [...left",
    seenBy: { file: outagesTest, test: "an outage is one line when it begins" }
  },
  {
    name: "ends-with-its-first-part",
    breaks: "an outage is told to be over while most parts of the process still wait for its end",
    file: outages,
    find: "|| isOpen(state, now) || !state.isTold",
    replace: "|| !state.isTold",
    seenBy: { file: outagesTest, test: "an outage is one line when it begins" }
  },
  {
    name: "tells-each-flap",
    breaks: "what flaps writes two lines for each failure",
    file: outages,
    find: "before?.toldMillis ?? Number",
    replace: "Number",
    seenBy: { file: outagesTest, test: "what flaps writes two lines" }
  },
  {
    name: "keeps-idle-parts",
    breaks: "an outage never ends where one of its parts has gone to another process",
    file: outages,
    find: "if (millis + forgottenMillis <= now)",
    replace: "if (millis < 0)",
    seenBy: { file: outagesTest, test: "a part that has nothing to do any more" }
  },
  {
    name: "stamps-before-it-has-failed",
    breaks: "a loop that shows progress before it fails ends its outage with each attempt",
    file: "src/platform/Supervised.ts",
    find: "Monotonic.millisUnsafe(clock) - startedMillis > (restartCapMillis ?? Backoff.restartCapMillis) ?",
    replace: "Monotonic.millisUnsafe(clock) >= startedMillis ?",
    seenBy: { file: outagesTest, test: "a loop that shows progress before it fails" }
  },
  {
    name: "trusts-any-broker",
    breaks: "whoever sits between the service and Kafka reads the password and all events",
    file: access,
    find: "rejectUnauthorized: true",
    replace: "rejectUnauthorized: false",
    seenBy: { file: accessTest, test: "each refusal is one sentence" }
  },
  {
    name: "trusts-any-name",
    breaks: "a certificate of the same authority for another machine lets that machine pass for a broker",
    file: access,
    find: "rejectUnauthorized: true,",
    replace: "rejectUnauthorized: true, checkServerIdentity: () => undefined,",
    seenBy: { file: accessTest, test: "each refusal is one sentence" }
  },
  {
    name: "proves-its-user-too-late",
    breaks: "a broker that limits sessions closes each connection in the middle of its work",
    file: "src/brokers/kafkajs/KafkaClient.ts",
    find: "const reauthenticateMillis = 10_000",
    replace: "const reauthenticateMillis = -10_000_000",
    seenBy: { file: accessTest, test: "a user whose proof runs out" }
  },
  {
    name: "blames-the-user-for-the-network",
    breaks: "an operator changes a password that is right, because a connection broke while it was proved",
    file: access,
    find: "authentication failed: Authentication failed/",
    replace: "authentication failed/",
    seenBy: { file: "test/brokers/kafkajs/KafkaRefusals.test.ts", test: "a connection that breaks while the user" }
  },
  {
    name: "denied-without-its-name",
    breaks: "an operator who forgot a right is not told which",
    file: "src/brokers/kafkajs/KafkaErrors.ts",
    find: "denied(right, found) ?? reasonOf(found)",
    replace: "reasonOf(found)",
    seenBy: { file: accessTest, test: "a missing right is a sentence" }
  },
  {
    name: "well-by-its-handshake",
    breaks: "health says ready while the broker refuses the user of each connection",
    file: "src/brokers/kafkajs/KafkaConsumer.ts",
    find: "if (beforeAccess.has(apiName)) return",
    replace: "",
    seenBy: { file: accessTest, test: "a consumer whose user is refused" }
  },
  {
    name: "files-without-tls",
    breaks: "KAFKA_SSL_CA without KAFKA_SSL sends everything in plain text",
    file: "src/KafkaVariables.ts",
    find: "...(config.kafkaSsl\n      ? []\n      : files",
    replace: "...(config.kafkaSsl || files.length > 0\n      ? []\n      : files",
    seenBy: { file: "test/main/KafkaVariables.test.ts", test: "what would connect without the protection" }
  }
]
