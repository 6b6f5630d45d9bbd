/** A real Kafka that demands TLS, a user and rights: who is let in, and what is told where not. */
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer, Ref, References, Schedule, Stream, SubscriptionRef } from "effect"
import { randomUUID } from "node:crypto"
import { readFileSync } from "node:fs"
import type { BrokerUnavailable, TopicUnavailable } from "../../../src/brokers/Broker.ts"
import type { KafkaAccess } from "../../../src/brokers/kafkajs/KafkaAccess.ts"
import { brokerContract } from "../../contracts/Broker.ts"
import { publish, publishStubbornly, read, textOf, within } from "../../contracts/BrokerHarness.ts"
import { eventually } from "../../support/Counters.ts"
import * as KafkaSource from "../../support/KafkaSource.ts"
import {
  certificateAccess,
  neededRules,
  type Rule,
  SecureKafka,
  sessionMillis,
  userAccess
} from "../../support/SecureKafka.ts"
import * as KafkaMember from "./KafkaMember.ts"

const local = await Effect.runPromise(KafkaSource.decideLocalKafka)
if (local._tag === "Unavailable") {
  const missing = `none of KafkaAccess.test.ts ran (TLS, SASL and rights of a real Kafka): ${local.missing}`
  if (process.env.CI === "true") throw new Error(missing)
  console.warn(`SKIPPED: ${missing}`)
}

const timeoutMillis = 120_000

const quiet = Layer.succeed(References.MinimumLogLevel, "Error")

/** A member with this access. Each has a prefix of its own, and so rights of its own. */
const memberWith = (server: string, access: KafkaAccess, prefix = `${randomUUID()}.`) =>
  Effect.map(KafkaMember.makeDirect({ brokers: [server], access, prefix }), (member) => ({ ...member, prefix }))

const topic = "orders"

/** The sentence with which a member is refused. */
const refusalOf = Effect.fnUntraced(function* (server: string, access: KafkaAccess) {
  const { broker } = yield* memberWith(server, access)
  const error: BrokerUnavailable | TopicUnavailable = yield* Effect.flip(broker.ensureTopic(topic, 1))
  assert.strictEqual(error._tag, "BrokerUnavailable")
  // A broker that refuses this process has answered nothing that it could use: health says degraded.
  assert.isFalse(yield* SubscriptionRef.get(broker.available))
  assert.notInclude(JSON.stringify(error.message), "secret")
  return "refusal" in error ? error.refusal : `no refusal: ${error.message}`
})

/** What a member with these rights is told; undefined where it succeeds. */
const toldBy = <A>(effect: Effect.Effect<A, { readonly _tag: string; readonly message: string }>) =>
  Effect.match(effect, { onSuccess: () => undefined, onFailure: ({ _tag, message }) => `${_tag}: ${message}` })

describe.skipIf(local._tag === "Unavailable")("Kafka's access", () => {
  // Its user has the rights that docs/hardening.md lists, and no other.
  brokerContract(
    "Kafka over TLS with SCRAM and an access list",
    Layer.unwrap(
      Effect.gen(function* () {
        const kafka = yield* SecureKafka
        yield* kafka.allow(...neededRules(KafkaMember.prefix))
        return KafkaMember.harness(kafka.server("sasl"), { access: userAccess(kafka, "scram-sha-512") })
      })
    ).pipe(Layer.provide(SecureKafka.layer))
  )

  layer(Layer.merge(SecureKafka.layer, quiet), { excludeTestServices: true, timeout: "120 seconds" })((it) => {
    for (const mechanism of ["plain", "scram-sha-256", "scram-sha-512", "certificate"] as const) {
      it.effect(
        `a user who is proved by ${mechanism} publishes and consumes`,
        () =>
          Effect.gen(function* () {
            const kafka = yield* SecureKafka
            const isCertificate = mechanism === "certificate"
            const access = isCertificate ? certificateAccess(kafka, kafka.client) : userAccess(kafka, mechanism)
            const member = yield* memberWith(kafka.server(isCertificate ? "mtls" : "sasl"), access)
            yield* kafka.allow(...neededRules(member.prefix, isCertificate ? "User:CN=paid-once" : undefined))
            yield* member.broker.ensureTopic(topic, 1)
            const reader = yield* read(member, { topic, group: "readers" })
            yield* publish(member, topic, ["one"])
            assert.strictEqual(textOf((yield* reader.take(1))[0]!.record), "one")
            yield* eventually(
              "the offset to be committed",
              Effect.map(member.progress.of("readers", topic), (all) => all.every(({ lag }) => lag === 0))
            )
          }),
        timeoutMillis
      )
    }

    it.effect(
      "each refusal is one sentence that names what to change",
      () =>
        Effect.gen(function* () {
          const kafka = yield* SecureKafka
          const { ca, client, expiredClient, otherCa, server } = kafka
          const good = userAccess(kafka, "scram-sha-256")
          const at = (name: Parameters<typeof server>[0]) => `Kafka at ${server(name)}: `
          for (const mechanism of ["plain", "scram-sha-256", "scram-sha-512"] as const) {
            for (const changes of [{ password: "secret" }, { username: "nobody" }]) {
              assert.strictEqual(
                yield* refusalOf(server("sasl"), userAccess(kafka, mechanism, changes)),
                `Kafka: it does not accept the user "${changes.username ?? "paid-once"}": check KAFKA_SASL_USERNAME, KAFKA_SASL_PASSWORD and KAFKA_SASL_MECHANISM`
              )
            }
          }
          assert.strictEqual(
            yield* refusalOf(server("expired"), good),
            `${at("expired")}its certificate has expired: renew it on the broker`
          )
          assert.strictEqual(
            yield* refusalOf(server("sasl"), userAccess({ ca: otherCa }, "plain")),
            `${at("sasl")}no authority in KAFKA_SSL_CA has signed its certificate`
          )
          assert.strictEqual(
            yield* refusalOf(server("sasl"), { ...good, tls: {} }),
            `${at("sasl")}no authority that Node trusts has signed its certificate: set KAFKA_SSL_CA`
          )
          assert.strictEqual(
            yield* refusalOf(server("renamed"), good),
            `${at("renamed")}its certificate is for other names: KAFKA_BROKERS and the broker's advertised.listeners must use one of these`
          )
          assert.strictEqual(
            yield* refusalOf(server("mtls"), { tls: { ca: readFileSync(ca, "utf8") } }),
            `${at("mtls")}it demands a certificate of this service: set KAFKA_SSL_CERT and KAFKA_SSL_KEY`
          )
          const day = new Date(Date.now() - 86_400_000).toISOString().slice(0, 10)
          assert.strictEqual(
            yield* refusalOf(server("mtls"), certificateAccess(kafka, expiredClient)),
            `${at("mtls")}the certificate in KAFKA_SSL_CERT expired on ${day}`
          )
          assert.strictEqual(
            yield* refusalOf(kafka.plainServer, certificateAccess(kafka, client)),
            `Kafka at ${kafka.plainServer}: it ended the connection during TLS: set KAFKA_SSL to off, or name its TLS port in KAFKA_BROKERS`
          )
          assert.strictEqual(
            yield* refusalOf(server("sasl"), {}),
            `${at("sasl")}it closed the connection without an answer: it may demand TLS (KAFKA_SSL) or a user (KAFKA_SASL_MECHANISM)`
          )
          assert.strictEqual(
            yield* refusalOf(server("sasl"), { tls: { ca: readFileSync(ca, "utf8") } }),
            `${at("sasl")}it closed the connection without an answer: it may demand a user (KAFKA_SASL_MECHANISM)`
          )
        }),
      timeoutMillis
    )

    it.effect(
      "a consumer whose user is refused never counts as connected",
      () =>
        Effect.gen(function* () {
          const kafka = yield* SecureKafka
          const access = userAccess(kafka, "scram-sha-512", { password: "wrong" })
          const { broker } = yield* memberWith(kafka.server("sasl"), access)
          const states = yield* Ref.make<ReadonlyArray<boolean>>([])
          yield* SubscriptionRef.changes(broker.available).pipe(
            Stream.runForEach((now) => Ref.update(states, (all) => [...all, now])),
            Effect.forkScoped({ startImmediately: true })
          )
          for (let attempt = 0; attempt < 3; attempt++) {
            const error = yield* Effect.flip(
              broker.consume({ group: "readers", topic, sliceSize: 10 }, () => Effect.void)
            )
            assert.match(error.message, /KAFKA_SASL_PASSWORD/)
          }
          // Available until the first exchange, and not once more.
          assert.deepStrictEqual(yield* Ref.get(states), [true, false])
        }),
      timeoutMillis
    )

    it.effect(
      "a missing right is a sentence that names it, and the member goes on as soon as it is granted",
      () =>
        Effect.gen(function* () {
          const kafka = yield* SecureKafka
          const member = yield* memberWith(kafka.server("sasl"), userAccess(kafka, "scram-sha-256"))
          const { broker, prefix } = member
          const denied = (operation: string, on: string, what = "topic", hint = "") =>
            `TopicUnavailable: topic orders is unavailable: Kafka denies User:paid-once the operation ${operation} on ${what} ${prefix}${on}: allow it in an ACL${hint} (${what.toUpperCase()}_AUTHORIZATION_FAILED)`
          const rule = (operation: Rule["operation"]) => ({ operation, resource: "topic", prefix }) as const
          const granted = (one: Rule) => kafka.allow(one)
          /** Rights reach a broker a moment after they are granted. */
          const until = (expected: string | undefined, effect: Effect.Effect<string | undefined>) =>
            within(
              expected ?? "success",
              Effect.gen(function* () {
                const last = yield* Ref.make<string | undefined>("")
                yield* effect.pipe(
                  Effect.tap((told) => Ref.set(last, told)),
                  Effect.repeat({ schedule: Schedule.spaced("50 millis"), until: (told) => told === expected }),
                  Effect.timeoutOrElse({
                    duration: "20 seconds",
                    orElse: () =>
                      Effect.map(Ref.get(last), (told) => assert.fail(`told ${told} instead of ${expected}`))
                  })
                )
              })
            )
          const ensure = toldBy(broker.ensureTopic(topic, 1))
          yield* until(denied("Describe", "orders"), ensure)
          assert.isTrue(yield* SubscriptionRef.get(broker.available), "it has answered")
          yield* granted(rule("Describe"))
          yield* until(
            denied("Create", "orders", "topic", ", or make the topic and set KAFKA_CREATE_TOPICS to off"),
            ensure
          )
          yield* granted(rule("Create"))
          yield* until(denied("DescribeConfigs", "orders"), ensure)
          yield* granted(rule("DescribeConfigs"))
          yield* until(undefined, ensure)
          const send = toldBy(publish(member, topic, ["one"]))
          yield* until(denied("Write", "orders"), send)
          yield* granted(rule("Write"))
          yield* until(undefined, send)
          const consume = toldBy(
            broker
              .consume({ group: "readers", topic, sliceSize: 10 }, (slice) =>
                Effect.andThen(slice.commit, Effect.interrupt)
              )
              .pipe(Effect.asVoid)
          )
          yield* until(denied("Read", "readers", "group"), consume)
          yield* granted({ operation: "Read", resource: "group", prefix })
          yield* until(denied("Read", "orders"), consume)
          yield* granted(rule("Read"))
          const reader = yield* read(member, { topic, group: "readers" })
          yield* reader.take(1)
        }),
      timeoutMillis
    )

    it.effect(
      "a user whose proof runs out proves it again: nothing is lost, nothing is sent twice",
      () =>
        Effect.gen(function* () {
          const kafka = yield* SecureKafka
          const member = yield* memberWith(kafka.server("reauth"), userAccess(kafka, "scram-sha-256"))
          yield* kafka.allow(...neededRules(member.prefix))
          yield* member.broker.ensureTopic(topic, 1)
          const reader = yield* read(member, { topic, group: "readers" })
          const expected: Array<string> = []
          const sends = Math.ceil((2.5 * sessionMillis) / 500)
          for (let index = 0; index < sends; index++) {
            yield* publish(member, topic, [String(index)])
            expected.push(String(index))
            yield* Effect.sleep("500 millis")
          }
          // Idle for longer than a proof lasts.
          yield* Effect.sleep(sessionMillis + 2_000)
          yield* publishStubbornly(member, topic, ["last"])
          const seen = yield* reader.takeUntil("last")
          assert.deepStrictEqual(
            seen.map(({ record }) => textOf(record)),
            [...expected, "last"]
          )
        }),
      timeoutMillis
    )
  })
})
