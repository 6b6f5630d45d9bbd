/** Unsuitable topics of a real Kafka: refused at the start, or paused where the broker becomes available later. */
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Redacted, Schedule } from "effect"
import { ConfigResourceTypes } from "kafkajs"
import { execFile } from "node:child_process"
import { randomUUID } from "node:crypto"
import * as Path from "node:path"
import { inject } from "vitest"
import { Broker } from "../../../src/brokers/Broker.ts"
import { Publisher } from "../../../src/outbox/Publisher.ts"
import * as CheckedTopics from "../../../src/operations/CheckedTopics.ts"
import { TopicChecks } from "../../../src/operations/TopicChecks.ts"
import * as DoctorChecks from "../../../src/operations/doctor/TopicChecks.ts"
import type { Finding } from "../../../src/operations/TopicFindings.ts"
import { Fibers } from "../../../src/platform/Supervised.ts"
import { within } from "../../contracts/BrokerHarness.ts"
import { root, TestDatabase } from "../../support/TestDatabase.ts"
import * as TestProcess from "../../support/TestProcess.ts"
import * as KafkaMember from "./KafkaMember.ts"

const bootstrapServers = inject("kafkaBrokers")
if (bootstrapServers === null) {
  const missing = `none of kafka/TopicChecks.test.ts ran (topics that are not fit): ${inject("kafkaMissing")}`
  if (process.env.CI === "true") throw new Error(missing)
  console.warn(`SKIPPED: ${missing}`)
}
const servers = bootstrapServers ?? ""

/** Creates a topic with these settings over the cluster's defaults. */
const makeTopic = Effect.fnUntraced(function* (
  config: Readonly<Record<string, string>>,
  { partitions = 8, prefix = KafkaMember.prefix }: { readonly partitions?: number; readonly prefix?: string } = {}
) {
  const topic = `unfit-${randomUUID()}`
  const admin = yield* KafkaMember.admin(servers)
  const make = () =>
    admin.createTopics({
      topics: [
        {
          topic: prefix + topic,
          numPartitions: partitions,
          replicationFactor: 1,
          configEntries: Object.entries(config).map(([name, value]) => ({ name, value }))
        }
      ]
    })
  yield* Effect.promise(make)
  return topic
})

/** The checks, and the publisher that they decorate, over a broker. */
const over = (broker: Broker["Service"]) =>
  CheckedTopics.layer.pipe(
    Layer.provideMerge(Layer.merge(Publisher.layer, TopicChecks.layer)),
    Layer.provideMerge(Layer.succeed(Broker, broker)),
    Layer.provideMerge(Fibers.layer),
    Layer.fresh,
    Layer.provideMerge(TestProcess.quiet)
  )

/** The first report of the checks: at the start, or later where the broker responded late. */
const firstReport = (context: Context.Context<TopicChecks>) =>
  within(
    "a check",
    Effect.repeat(Context.get(context, TopicChecks).reports, {
      until: (reports) => reports.length > 0,
      schedule: Schedule.spaced("50 millis")
    })
  )

const start = (topic: string) =>
  Effect.gen(function* () {
    const { broker } = yield* KafkaMember.makeDirect({ brokers: servers.split(",") })
    return yield* Layer.build(TopicChecks.layerStart([topic]).pipe(Layer.provideMerge(over(broker))))
  })

const day = 86_400_000

describe.skipIf(bootstrapServers === null)("TopicChecks on Kafka", () => {
  for (const [what, config, options, sentence] of [
    ["has twelve partitions", {}, { partitions: 12 }, /it has 12 partitions: 64 lanes need a count that divides 64/],
    ["is compacted", { "cleanup.policy": "compact" }, {}, /cleanup\.policy is to compact/],
    ["is compacted and deleted", { "cleanup.policy": "compact,delete" }, {}, /cleanup\.policy is to compact/],
    [
      "asks for more acks than it has copies",
      { "min.insync.replicas": "2" },
      {},
      /min\.insync\.replicas is 2, and it has 1 copy/
    ],
    [
      "remembers longer than the inbox",
      { "retention.ms": String(30 * day) },
      {},
      /for 30 days \(retention\.ms\), and an event is known/
    ],
    ["remembers for ever", { "retention.ms": "-1" }, {}, /it keeps records for ever/],
    ["remembers for ages", { "retention.ms": "9223372036854775807" }, {}, /it keeps records for ever/]
  ] as const) {
    it.live(`a topic that ${what} refuses the start with a sentence`, () =>
      Effect.gen(function* () {
        const topic = yield* makeTopic(config, options)
        // A late response is no refusal.
        const error = yield* Effect.retry(Effect.flip(start(topic)), { times: 4 })
        assert.strictEqual(error._tag, "TopicUnfit")
        assert.match(error.message, sentence)
        assert.include(error.message, `topic ${topic}: `)
      }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
    )
  }

  it.live("a lowered limit does not refuse the start: health reports it, and events that fit are still published", () =>
    Effect.gen(function* () {
      const topic = yield* makeTopic({ "max.message.bytes": "100000", "segment.ms": String(day) })
      const context = yield* start(topic)
      const [report] = yield* firstReport(context)
      assert.deepStrictEqual(
        report?.findings.map(({ kind }) => kind),
        ["oversize", "weak", "weak"] satisfies Array<Finding["kind"]>
      )
      // Small events are still published, and holds deal with large ones.
      assert.strictEqual(yield* Context.get(context, Publisher).prepare(topic), 8)
      // The publisher uses the same TopicChecks as the report.
      yield* Context.get(context, Publisher).prepare(`${topic}-other`)
      assert.strictEqual((yield* Context.get(context, TopicChecks).reports).length, 2)
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live("a topic that the service creates has no finding but its single replica", () =>
    Effect.gen(function* () {
      const topic = `fit-${randomUUID()}`
      const context = yield* start(topic)
      const [report] = yield* firstReport(context)
      assert.deepStrictEqual(
        report?.findings.map(({ kind, sentence }) => [kind, sentence.split(":")[0]]),
        [["weak", "it has one copy"]]
      )
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live("the doctor notes one copy in a cluster of one broker, and its commands name the broker", () =>
    Effect.gen(function* () {
      const { broker } = yield* KafkaMember.makeDirect({ brokers: servers.split(",") })
      const look = Effect.fnUntraced(function* (topic: string) {
        const [check] = DoctorChecks.checks([topic])
        const outcome = yield* check!.run.pipe(
          Effect.provideService(DoctorChecks.TopicDescriptions, {
            describe: (described) => broker.ensureTopic(described, 8)
          })
        )
        return outcome._tag === "Told" ? outcome : assert.fail(outcome.why)
      })
      const fit = yield* look(`fit-${randomUUID()}`)
      assert.deepStrictEqual(fit.findings, [])
      assert.match(fit.told, /; it has one copy, for its cluster is one broker$/)
      const short = yield* look(
        yield* makeTopic({ "retention.ms": "60000", "segment.ms": String(day), "compression.type": "uncompressed" })
      )
      const small = yield* look(
        yield* makeTopic({
          "retention.bytes": "1000000",
          "segment.ms": String(day),
          "compression.type": "uncompressed"
        })
      )
      assert.match(small.findings.map(({ problem }) => problem).join(), /retention\.bytes is 1000000/)
      assert.strictEqual(short.findings.length, 1)
      assert.match(short.findings[0]!.problem, /kafka-configs\.sh --bootstrap-server [\w.]+:\d+ --alter/)
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live("a cluster's default settings have a finding where a record outlives its mark", () =>
    Effect.gen(function* () {
      const topic = yield* makeTopic({})
      const context = yield* start(topic)
      const [report] = yield* firstReport(context)
      assert.include(
        report?.findings.map(({ sentence }) => sentence).join("\n"),
        "so it may be there for 14 days (retention.ms and segment.ms)"
      )
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live(
    "publishing to a topic that gets compacted pauses once a check finds it, and resumes when compaction is off",
    () =>
      Effect.gen(function* () {
        const topic = yield* makeTopic({ "segment.ms": String(day) })
        const context = yield* start(topic)
        const { prepare } = Context.get(context, Publisher)
        const { inspect } = Context.get(context, TopicChecks)
        const admin = yield* KafkaMember.admin(servers)
        /** Sets all of them at once: a setting that is not named falls back to the cluster's default. */
        const set = (policy: string) =>
          Effect.promise(() =>
            admin.alterConfigs({
              validateOnly: false,
              resources: [
                {
                  type: ConfigResourceTypes.TOPIC,
                  name: KafkaMember.prefix + topic,
                  configEntries: [
                    { name: "cleanup.policy", value: policy },
                    { name: "segment.ms", value: String(day) }
                  ]
                }
              ]
            })
          )
        /** Waits until the setting has reached the broker that is asked. */
        const seen = (kind: Finding["kind"], is: boolean) =>
          within(
            `a look that ${is ? "finds" : "misses"} what ${kind}`,
            Effect.repeat(inspect(topic), {
              until: ({ findings }) => findings.some((finding) => finding.kind === kind) === is,
              schedule: Schedule.spaced("50 millis")
            })
          )
        assert.strictEqual(yield* prepare(topic), 8)
        yield* set("compact")
        yield* seen("stops", true)
        const error = yield* Effect.flip(prepare(topic))
        assert.match(error.message, /is unavailable: cleanup\.policy is to compact/)
        yield* set("delete")
        yield* seen("stops", false)
        assert.strictEqual(yield* prepare(topic), 8)
      }).pipe(Effect.scoped, Effect.provide(Layer.merge(TestDatabase.layerPool, TestProcess.quiet)))
  )

  it.live("a topic that grows keeps its events in its old partitions, in every dispatcher, and health reports it", () =>
    Effect.gen(function* () {
      const topic = yield* makeTopic({ "segment.ms": String(day) })
      const one = yield* start(topic)
      yield* firstReport(one)
      const admin = yield* KafkaMember.admin(servers)
      yield* Effect.promise(() =>
        admin.createPartitions({ topicPartitions: [{ topic: KafkaMember.prefix + topic, count: 16 }] })
      )
      const other = yield* start(topic)
      for (const context of [one, other]) {
        const { info, findings } = yield* within(
          "the new count",
          Effect.repeat(Context.get(context, TopicChecks).inspect(topic), {
            until: ({ info }) => info.partitions === 16,
            schedule: Schedule.spaced("50 millis")
          })
        )
        assert.strictEqual(info.partitions, 16)
        assert.match(findings.at(-1)!.sentence, /^it has 16 partitions, and events go to the first 8/)
        assert.strictEqual(yield* Context.get(context, Publisher).prepare(topic), 8)
      }
    }).pipe(Effect.scoped, Effect.provide(Layer.merge(TestDatabase.layerPool, TestProcess.quiet)))
  )

  it.live(
    "an unavailable broker does not refuse the start; once it is available, publishing to an unsafe topic pauses, with the reason",
    () =>
      Effect.gen(function* () {
        const topic = yield* makeTopic({ "cleanup.policy": "compact" })
        const { broker, proxy } = yield* KafkaMember.make(servers)
        yield* proxy.refuse
        const context = yield* Layer.build(TopicChecks.layerStart([topic]).pipe(Layer.provideMerge(over(broker))))
        const publisher = Context.get(context, Publisher)
        assert.strictEqual((yield* Effect.flip(publisher.prepare(topic)))._tag, "BrokerUnavailable")
        yield* proxy.pass
        const checks = Context.get(context, TopicChecks)
        yield* within(
          "the check",
          checks.reports.pipe(
            Effect.repeat({
              until: (reports) => reports.some(({ findings }) => findings.some(({ kind }) => kind === "stops")),
              schedule: Schedule.spaced("50 millis")
            })
          )
        )
        const error = yield* Effect.flip(publisher.prepare(topic))
        assert.strictEqual(error._tag, "TopicUnavailable")
        assert.match(error.message, /is unavailable: cleanup\.policy is to compact/)
      }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live("a broker that never answers does not keep the service from starting", () =>
    Effect.gen(function* () {
      const { broker, proxy } = yield* KafkaMember.make(servers)
      yield* proxy.blackHole()
      const context = yield* within(
        "the start",
        Layer.build(TopicChecks.layerStart(["any"]).pipe(Layer.provideMerge(over(broker))))
      )
      assert.deepStrictEqual(yield* Context.get(context, TopicChecks).reports, [])
      yield* proxy.pass
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
  )

  it.live("the service does not start on an unsafe topic: one line, exit status 1", () =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase
      const prefix = `unfit-${randomUUID()}-`
      const directory = yield* TestDatabase.dataDirectory
      const admin = yield* KafkaMember.admin(servers)
      yield* Effect.promise(() =>
        admin.createTopics({ topics: [{ topic: `${prefix}orders`, numPartitions: 12, replicationFactor: 1 }] })
      )
      const { code, stderr } = yield* Effect.callback<{ readonly code: unknown; readonly stderr: string }>((resume) => {
        const child = execFile(
          process.execPath,
          [Path.join(root, "src/paid-once.js"), "serve"],
          {
            env: {
              PATH: process.env["PATH"],
              DATABASE_URL: Redacted.value(url),
              DATA_DIRECTORY: directory,
              PORT: "0",
              LOG_LEVEL: "None",
              KAFKA_BROKERS: servers,
              KAFKA_PREFIX: prefix
            },
            timeout: 50_000
          },
          (error, _, stderr) => resume(Effect.succeed({ code: error?.code ?? 0, stderr }))
        )
        return Effect.sync(() => void child.kill("SIGKILL"))
      })
      assert.strictEqual(code, 1, stderr)
      const lines = stderr.trim().split("\n")
      assert.strictEqual(lines.length, 1, stderr)
      assert.match(lines[0]!, /^paid-once: topic orders: it has 12 partitions: 64 lanes need a count that divides 64/)
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
  )
})
