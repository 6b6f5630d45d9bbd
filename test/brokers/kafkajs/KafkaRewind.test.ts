/** Groups that read their topic anew: Kafka forgets them, unless they have members. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { inject } from "vitest"
import { KafkaSettings } from "../../../src/brokers/kafkajs/KafkaBroker.ts"
import { rewind } from "../../../src/brokers/kafkajs/KafkaRewind.ts"
import { newTopic, numbers, publish, read, textOf } from "../../contracts/BrokerHarness.ts"
import * as KafkaMember from "./KafkaMember.ts"

const brokers = inject("kafkaBrokers")
const settings = {
  brokers: (brokers ?? "").split(","),
  prefix: KafkaMember.prefix,
  createTopics: true,
  replication: 1,
  sendTimeoutMillis: KafkaMember.sendTimeoutMillis,
  sessionTimeoutMillis: KafkaMember.sessionTimeoutMillis,
  clientId: "test"
}

describe.skipIf(brokers === null)("with a real Kafka", () => {
  it.live(
    "a group with members is named and left as it is; once it is empty it reads from the first record, and none joins it meanwhile",
    () =>
      Effect.gen(function* () {
        const member = yield* KafkaMember.makeDirect({ brokers: settings.brokers })
        const { group, topic } = yield* newTopic(member)
        yield* publish(member, topic, numbers(0, 3))
        const reader = yield* read(member, { topic, group })
        yield* reader.take(3)
        const [busy, ...others] = yield* rewind([group, `${group}-that-never-was`], topic)
        assert.deepStrictEqual(others, [])
        assert.strictEqual(busy!.group, `${KafkaMember.prefix}${group}`)
        assert.match(busy!.members.join("\n"), /^test-[\da-f-]+ at [\d.]+$/)
        yield* reader.stop
        assert.deepInclude((yield* member.progress.of(group, topic))[0], { committed: 3n })

        assert.deepStrictEqual(yield* rewind([group], topic), [])
        assert.deepInclude((yield* member.progress.of(group, topic))[0], { committed: null, owner: null })
        // A member that had joined for the rewind, and was killed, would keep it busy.
        assert.deepStrictEqual(yield* rewind([group], topic), [])
        const again = yield* read(member, { topic, group })
        assert.deepStrictEqual(
          (yield* again.take(3)).map(({ record }) => textOf(record)),
          numbers(0, 3)
        )
      }).pipe(Effect.scoped, Effect.provide(Layer.succeed(KafkaSettings, settings))),
    120_000
  )
})
