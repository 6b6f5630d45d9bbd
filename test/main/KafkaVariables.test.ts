/** The variables for Kafka's TLS and SASL: what is read, what does not fit together, and what is warned of. */
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Effect, Redacted } from "effect"
import { generateKeyPairSync } from "node:crypto"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import { inspect } from "node:util"
import * as Config from "../../src/Config.ts"
import * as KafkaVariables from "../../src/KafkaVariables.ts"

/** A certificate whose key nobody has. */
const certificate = `-----BEGIN CERTIFICATE-----
MIIBdDCCARmgAwIBAgIUOf4VxZC8eDihZZlYrxjHsp6HN7wwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAeFw0yNjExMjMxNTU2MzBaFw0yNjExMjQxNTU2MzBa
MA8xDTALBgNVBAMMBHRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATgDEpK
n+aHtrz7rmkdp+L9VnrZ1vZ/z9fr7qE0tfrL8tlphN6xTptkI8XFrOVvBX+5sgbg
S1N0gC38NYTxVN21o1MwUTAdBgNVHQ4EFgQUJZ8S3r7B2BI4ecMnPqXlGHOrFaow
HwYDVR0jBBgwFoAUJZ8S3r7B2BI4ecMnPqXlGHOrFaowDwYDVR0TAQH/BAUwAwEB
/zAKBggqhkjOPQQDAgNJADBGAiEAnCNk8gv8VIjtcSyu4ynUKK5RGjISRDgGXId5
yqUor4ACIQCLWi67kO/9hTnCS81Ty4REFeJ7+9tLhcRb1UXDL338Hg==
-----END CERTIFICATE-----
`

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(Path.join(tmpdir(), "paid-once-pem-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const load = (env: Readonly<Record<string, string>>) =>
  Effect.provide(Config.load, ConfigProvider.layer(ConfigProvider.fromUnknown(env)))

/** The lines with which the start is refused. */
const refused = (env: Readonly<Record<string, string>>) =>
  Effect.map(Effect.flip(load(env)), ({ problems }) => problems)

const kafka = { KAFKA_BROKERS: "kafka.example:9093" }

describe("Kafka's variables", () => {
  it.effect("a PEM file that is missing, or holds something else, is refused with its variable's name", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const file = Path.join(path, "key.pem")
      const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" })
      writeFileSync(file, privateKey.export({ type: "pkcs8", format: "pem" }))
      const missing = Path.join(path, "none.pem")
      const env = { ...kafka, KAFKA_SSL: "on", KAFKA_SSL_CA: missing, KAFKA_SSL_CERT: file, KAFKA_SSL_KEY: path }
      assert.deepStrictEqual(yield* refused(env), [
        `KAFKA_SSL_CA: "${missing}" is not the path of certificates in PEM (ENOENT)`,
        `KAFKA_SSL_CERT: "${file}" is not the path of certificates in PEM (it holds something else)`,
        `KAFKA_SSL_KEY: "${path}" is not the path of a private key without a passphrase in PEM (EISDIR)`
      ])
    })
  )

  it.effect("what would connect without the protection that was asked for is refused", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const cert = Path.join(path, "cert.pem")
      const key = Path.join(path, "key.pem")
      writeFileSync(cert, certificate)
      const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" })
      writeFileSync(key, privateKey.export({ type: "pkcs8", format: "pem" }))
      const cases: ReadonlyArray<readonly [Readonly<Record<string, string>>, ReadonlyArray<string>]> = [
        [{ KAFKA_SSL_CA: cert, ...kafka }, ["KAFKA_SSL_CA is set: KAFKA_SSL must be on, or nothing is encrypted"]],
        [{ KAFKA_SSL: "on" }, ["KAFKA_SSL is set: KAFKA_BROKERS must be set too, or events stay in Postgres"]],
        [{ ...kafka, KAFKA_SSL: "on", KAFKA_SSL_CERT: cert }, ["KAFKA_SSL_CERT is set: KAFKA_SSL_KEY must be set too"]],
        [
          { ...kafka, KAFKA_SSL: "on", KAFKA_SSL_CERT: cert, KAFKA_SSL_KEY: key },
          ["KAFKA_SSL_KEY is not the key of the first certificate in KAFKA_SSL_CERT"]
        ],
        [
          { ...kafka, KAFKA_SASL_MECHANISM: "plain" },
          [
            "KAFKA_SASL_MECHANISM is set: KAFKA_SASL_USERNAME must be set too",
            "KAFKA_SASL_MECHANISM is set: KAFKA_SASL_PASSWORD must be set too"
          ]
        ],
        [
          { ...kafka, KAFKA_SASL_PASSWORD: "secret" },
          ["KAFKA_SASL_PASSWORD is set: KAFKA_SASL_MECHANISM must be set too"]
        ]
      ]
      for (const [env, expected] of cases) assert.deepStrictEqual(yield* refused(env), expected)
    })
  )

  it.effect("a password is never shown, whatever is wrong with it", () =>
    Effect.gen(function* () {
      const env = { ...kafka, KAFKA_SASL_MECHANISM: "plain", KAFKA_SASL_USERNAME: "app" }
      const lines = yield* refused({ ...env, KAFKA_SASL_PASSWORD: "sec\u0000ret" })
      assert.deepStrictEqual(lines, ["KAFKA_SASL_PASSWORD: the value is not 1 to 1,000 printable characters"])
      const config = yield* load({ ...env, KAFKA_SASL_PASSWORD: "secret" })
      assert.notInclude(inspect(config, { depth: 9 }), "secret")
      const { sasl } = KafkaVariables.access(config)
      assert.strictEqual(sasl === undefined ? undefined : Redacted.value(sasl.password), "secret")
    })
  )

  it.effect("plain text to another machine is warned of, and more so with a plain password", () =>
    Effect.gen(function* () {
      const warnings = (env: Readonly<Record<string, string>>) => Effect.map(load(env), KafkaVariables.warnings)
      assert.deepStrictEqual(yield* warnings({ KAFKA_BROKERS: "127.0.0.1:9092,localhost:9093,[::1]:9094" }), [])
      assert.deepStrictEqual(yield* warnings({ ...kafka, KAFKA_SSL: "on" }), [])
      assert.deepStrictEqual(yield* warnings({ KAFKA_BROKERS: "localhost:9092,kafka.example:9093" }), [
        "KAFKA_SSL is off: all events go to kafka.example:9093 in plain text"
      ])
      const user = { KAFKA_SASL_MECHANISM: "plain", KAFKA_SASL_USERNAME: "app", KAFKA_SASL_PASSWORD: "secret" }
      assert.deepStrictEqual(yield* warnings({ ...kafka, ...user }), [
        "KAFKA_SSL is off: the password and all events go to kafka.example:9093 in plain text"
      ])
    })
  )
})
