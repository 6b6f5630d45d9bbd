/** The variables for Kafka's TLS and SASL: PEM files, and what does not fit together. */
import { Redacted, Result } from "effect"
import { createPrivateKey, X509Certificate } from "node:crypto"
import { readFileSync } from "node:fs"
import { createSecureContext } from "node:tls"
import type { KafkaAccess, Mechanism } from "./brokers/kafkajs/KafkaAccess.ts"
import type { Parsed } from "./Variable.ts"

/** The file's text, where `check` takes it. Read once, at the start: a new file needs a new start. */
const pemFile =
  (what: string, check: (pem: string) => unknown) =>
  (path: string): Parsed<string> => {
    const refuse = (reason: string) => Result.fail(`the path of ${what} in PEM (${reason})`)
    let pem: string
    try {
      pem = readFileSync(path, "utf8")
    } catch (error) {
      return refuse(error instanceof Error && "code" in error ? String(error.code) : "it can't be read")
    }
    try {
      check(pem)
      return Result.succeed(pem)
    } catch {
      return refuse("it holds something else")
    }
  }

/** A PEM file with one certificate or several. */
export const certificateFile = pemFile("certificates", (pem) => {
  // X509Certificate reads the first one only.
  createSecureContext({ ca: pem })
  return new X509Certificate(pem)
})

/** A PEM file with a private key without a passphrase. */
export const keyFile = (path: string): Parsed<Redacted.Redacted> =>
  Result.map(pemFile("a private key without a passphrase", createPrivateKey)(path), Redacted.make)

/** The variables about Kafka, decoded. */
interface KafkaConfig {
  readonly kafkaBrokers: ReadonlyArray<string> | undefined
  readonly kafkaSsl: boolean
  readonly kafkaSslCa: string | undefined
  readonly kafkaSslCert: string | undefined
  readonly kafkaSslKey: Redacted.Redacted | undefined
  readonly kafkaSaslMechanism: Mechanism | undefined
  readonly kafkaSaslUsername: string | undefined
  readonly kafkaSaslPassword: Redacted.Redacted | undefined
}

/** What does not fit together. Each would else connect without the protection that the operator believes in, or not at all. */
export const conflicts = (config: KafkaConfig): ReadonlyArray<string> => {
  const named: Readonly<Record<string, unknown>> = {
    KAFKA_SSL_CA: config.kafkaSslCa,
    KAFKA_SSL_CERT: config.kafkaSslCert,
    KAFKA_SSL_KEY: config.kafkaSslKey,
    KAFKA_SASL_MECHANISM: config.kafkaSaslMechanism,
    KAFKA_SASL_USERNAME: config.kafkaSaslUsername,
    KAFKA_SASL_PASSWORD: config.kafkaSaslPassword
  }
  const isSet = (name: string) => named[name] !== undefined
  const needs = (name: string, others: ReadonlyArray<string>) =>
    isSet(name)
      ? others.filter((other) => !isSet(other)).map((other) => `${name} is set: ${other} must be set too`)
      : []
  const files = ["KAFKA_SSL_CA", "KAFKA_SSL_CERT", "KAFKA_SSL_KEY"]
  const withoutKafka = [...(config.kafkaSsl ? ["KAFKA_SSL"] : []), ...Object.keys(named).filter(isSet)]
  return [
    ...(config.kafkaBrokers === undefined
      ? withoutKafka.map((name) => `${name} is set: KAFKA_BROKERS must be set too, or events stay in Postgres`)
      : []),
    ...(config.kafkaSsl
      ? []
      : files.filter(isSet).map((name) => `${name} is set: KAFKA_SSL must be on, or nothing is encrypted`)),
    ...needs("KAFKA_SSL_CERT", ["KAFKA_SSL_KEY"]),
    ...needs("KAFKA_SSL_KEY", ["KAFKA_SSL_CERT"]),
    ...needs("KAFKA_SASL_MECHANISM", ["KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD"]),
    ...needs("KAFKA_SASL_USERNAME", ["KAFKA_SASL_MECHANISM"]),
    ...needs("KAFKA_SASL_PASSWORD", ["KAFKA_SASL_MECHANISM"]),
    ...(config.kafkaSslCert !== undefined &&
    config.kafkaSslKey !== undefined &&
    !new X509Certificate(config.kafkaSslCert).checkPrivateKey(createPrivateKey(Redacted.value(config.kafkaSslKey)))
      ? ["KAFKA_SSL_KEY is not the key of the first certificate in KAFKA_SSL_CERT"]
      : [])
  ]
}

const isLoopback = (server: string) => /^(?:localhost|127(?:\.\d+){3}|\[::1\]):\d+$/.test(server)

/** What works, and lets others read along: sentences for the log. */
export const warnings = (config: KafkaConfig): ReadonlyArray<string> => {
  const away = (config.kafkaBrokers ?? []).filter((server) => !isLoopback(server))
  const what = config.kafkaSaslMechanism === "plain" ? "the password and all events" : "all events"
  return config.kafkaSsl || away.length === 0
    ? []
    : [`KAFKA_SSL is off: ${what} go to ${away.join(", ")} in plain text`]
}

/** TLS and the user, where {@link conflicts} finds none. */
export const access = (config: KafkaConfig): KafkaAccess => {
  const { kafkaSaslMechanism, kafkaSaslPassword, kafkaSaslUsername, kafkaSslCa, kafkaSslCert, kafkaSslKey } = config
  const tls = {
    ...(kafkaSslCa === undefined ? {} : { ca: kafkaSslCa }),
    ...(kafkaSslCert === undefined ? {} : { cert: kafkaSslCert }),
    ...(kafkaSslKey === undefined ? {} : { key: kafkaSslKey })
  }
  const hasUser = kafkaSaslMechanism !== undefined && kafkaSaslUsername !== undefined && kafkaSaslPassword !== undefined
  return {
    ...(config.kafkaSsl ? { tls } : {}),
    ...(hasUser
      ? { sasl: { mechanism: kafkaSaslMechanism, username: kafkaSaslUsername, password: kafkaSaslPassword } }
      : {})
  }
}
