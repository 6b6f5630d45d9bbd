/** What is a refusal, and what is an outage. `KafkaAccess.test.ts` has the refusals of a real broker. */
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Redacted } from "effect"
import { createRequire } from "node:module"
import * as KafkaAccess from "../../../src/brokers/kafkajs/KafkaAccess.ts"
import * as KafkaErrors from "../../../src/brokers/kafkajs/KafkaErrors.ts"
import * as Outages from "../../../src/platform/Outages.ts"

const require = createRequire(import.meta.url)
const errors = require("kafkajs/src/errors.js") as Readonly<
  Record<string, new (message: string, options?: object) => Error>
>
const proof = (verdict: string) =>
  new errors["KafkaJSSASLAuthenticationError"]!(`SASL PLAIN authentication failed: ${verdict}`)
const broken = (code: string) => new errors["KafkaJSConnectionError"]!("Connection error", { broker: "k:9093", code })

const access: KafkaAccess.KafkaAccess = {
  tls: {},
  sasl: { mechanism: "plain", username: "app", password: Redacted.make("secret") }
}

/** In 2026: no certificate is read here. */
const explain = (error: unknown, of: KafkaAccess.KafkaAccess) => KafkaAccess.explain(error, of, 1_790_000_000_000)
const clock = Effect.runSync(Clock.Clock)

describe("Kafka's refusals", () => {
  it("a connection that breaks while the user is proved is an outage, and no refusal", () => {
    for (const verdict of ["Closed connection", "Request SaslAuthenticate(key: 36, version: 1) timed out"]) {
      assert.isUndefined(explain(proof(verdict), access))
    }
    assert.isUndefined(explain(broken("ECONNREFUSED"), access))
    assert.isUndefined(explain(new Error("no answer within 3000 ms"), access))
    assert.match(explain(proof("Authentication failed: Invalid username"), access)!, /KAFKA_SASL_USERNAME/)
  })

  it("the codes of every OpenSSL are read, and the broker is named", () => {
    for (const code of ["ERR_SSL_SSL/TLS_ALERT_BAD_CERTIFICATE", "ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED"]) {
      assert.strictEqual(
        explain(broken(code), access),
        "Kafka at k:9093: it demands a certificate of this service: set KAFKA_SSL_CERT and KAFKA_SSL_KEY"
      )
    }
  })

  it("an outage and each refusal are told apart, whatever their details", () => {
    const { toUnavailable } = KafkaErrors.make(access, clock)
    const right = { operation: "Describe", topic: "p.orders" } as const
    const kindOf = (cause: unknown) => Outages.of(toUnavailable("ensure topic", "orders", right, cause))?.kind
    assert.strictEqual(kindOf(broken("ECONNREFUSED")), kindOf(broken("ECONNRESET")))
    assert.notStrictEqual(kindOf(broken("ECONNREFUSED")), kindOf(broken("CERT_HAS_EXPIRED")))
    assert.notStrictEqual(kindOf(broken("CERT_NOT_YET_VALID")), kindOf(broken("CERT_HAS_EXPIRED")))
  })
})
