/**
 * A real Kafka that demands TLS, a user and rights: one node with several listeners, an authorizer that denies what no rule allows, and users
 * for PLAIN and SCRAM. Its certificates are made anew by `openssl`, by an authority of their own.
 */
import { Context, Effect, Layer, Redacted, type Scope } from "effect"
import { AclOperationTypes, AclPermissionTypes, AclResourceTypes, Kafka, logLevel, ResourcePatternTypes } from "kafkajs"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import type { KafkaAccess, Mechanism } from "../../src/brokers/kafkajs/KafkaAccess.ts"
import * as LocalKafka from "./LocalKafka.ts"

/** The user of the service. It may do only what {@link SecureKafka.allow} allows. */
export const user = "paid-once"
/** With characters that have a meaning in messages of SCRAM. */
export const password = "p=s n=r"

/** How long a user's proof lasts on the listener `reauth`. Above the ten seconds before the end in which kafkajs proves it again. */
export const sessionMillis = 13_000

/** The files of a certificate and its key. */
export interface Certificate {
  readonly cert: string
  readonly key: string
}

const makeCertificates = Effect.fnUntraced(function* (directory: string) {
  const file = (name: string) => path.join(directory, name)
  const openssl = (...args: ReadonlyArray<string>) => LocalKafka.execute("openssl", args, { cwd: directory })
  const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
  const authority = Effect.fnUntraced(function* (name: string) {
    yield* openssl(
      "req",
      "-x509",
      ...newKey,
      "-keyout",
      `${name}.key`,
      "-out",
      `${name}.pem`,
      "-subj",
      `/CN=${name}`,
      "-days",
      "30"
    )
    return file(`${name}.pem`)
  })
  const certificate = Effect.fnUntraced(function* (name: string, subject: string, names: string, days = "30") {
    yield* openssl("req", ...newKey, "-keyout", `${name}.key`, "-out", `${name}.csr`, "-subj", `/CN=${subject}`)
    fs.writeFileSync(file(`${name}.names`), `subjectAltName=${names}\n`)
    const signing = ["-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial", "-days", days]
    yield* openssl("x509", "-req", "-in", `${name}.csr`, ...signing, "-extfile", `${name}.names`, "-out", `${name}.pem`)
    const keyStore = fs.readFileSync(file(`${name}.key`), "utf8") + fs.readFileSync(file(`${name}.pem`), "utf8")
    fs.writeFileSync(file(`${name}.store`), keyStore)
    return { cert: file(`${name}.pem`), key: file(`${name}.key`) }
  })
  const ca = yield* authority("authority")
  const here = "IP:127.0.0.1,DNS:localhost"
  yield* certificate("broker", "broker", here)
  yield* certificate("expired", "broker", here, "-1")
  yield* certificate("renamed", "broker", "DNS:kafka.example")
  return {
    ca,
    otherCa: yield* authority("stranger"),
    client: yield* certificate("client", user, "DNS:client.example"),
    expiredClient: yield* certificate("old", user, "DNS:client.example", "-1"),
    file
  }
})

/** The listeners for clients, with the certificate that each shows. */
const listeners = {
  sasl: { protocol: "SASL_SSL", certificate: "broker" },
  reauth: { protocol: "SASL_SSL", certificate: "broker" },
  mtls: { protocol: "SSL", certificate: "broker" },
  expired: { protocol: "SASL_SSL", certificate: "expired" },
  renamed: { protocol: "SASL_SSL", certificate: "renamed" }
} as const
export type ListenerName = keyof typeof listeners

const mechanisms: ReadonlyArray<Mechanism> = ["plain", "scram-sha-256", "scram-sha-512"]

const settingsOf = (file: (name: string) => string) =>
  Object.fromEntries(
    Object.entries(listeners).flatMap(([name, { certificate, protocol }]) => {
      const settings: Record<string, string> = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": file(`${certificate}.store`),
        ...(protocol === "SSL"
          ? {
              "ssl.client.auth": "required",
              "ssl.truststore.type": "PEM",
              "ssl.truststore.location": file("authority.pem")
            }
          : {
              "sasl.enabled.mechanisms": mechanisms.map((one) => one.toUpperCase()).join(","),
              "plain.sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required user_${user}="${password}";`,
              "scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
              "scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            }),
        ...(name === "reauth"
          ? Object.fromEntries(
              mechanisms.map((one) => [`${one}.connections.max.reauth.ms`, String(sessionMillis)] as const)
            )
          : {})
      }
      return Object.entries(settings).map(([key, value]) => [`listener.name.${name}.${key}`, value] as const)
    })
  )

/** An operation of the service's user on topics or groups whose names begin so. */
export interface Rule {
  readonly operation: "Create" | "Describe" | "DescribeConfigs" | "Read" | "Write"
  readonly resource: "topic" | "group"
  readonly prefix: string
  readonly principal?: string
}

const operations = {
  Create: AclOperationTypes.CREATE,
  Describe: AclOperationTypes.DESCRIBE,
  DescribeConfigs: AclOperationTypes.DESCRIBE_CONFIGS,
  Read: AclOperationTypes.READ,
  Write: AclOperationTypes.WRITE
} as const

const entryOf = ({ operation, prefix, principal = `User:${user}`, resource }: Rule) => ({
  resourceType: resource === "topic" ? AclResourceTypes.TOPIC : AclResourceTypes.GROUP,
  resourceName: prefix,
  resourcePatternType: ResourcePatternTypes.PREFIXED,
  principal,
  host: "*",
  operation: operations[operation],
  permissionType: AclPermissionTypes.ALLOW
})

/** All that the service needs, as docs/hardening.md lists it; `Create` only where it makes its topics. */
export const neededRules = (prefix: string, principal = `User:${user}`): ReadonlyArray<Rule> => [
  ...(["Read", "Write", "DescribeConfigs", "Create"] as const).map((operation) => ({
    operation,
    resource: "topic" as const,
    prefix,
    principal
  })),
  { operation: "Read", resource: "group", prefix, principal }
]

export class SecureKafka extends Context.Service<
  SecureKafka,
  {
    /** `host:port` of a listener. */
    readonly server: (name: ListenerName) => string
    /** A listener without TLS and users, for the tests' own requests: its user may do everything. */
    readonly plainServer: string
    readonly broker: LocalKafka.Broker
    readonly ca: string
    /** Of an authority that has signed nothing here. */
    readonly otherCa: string
    readonly client: Certificate
    readonly expiredClient: Certificate
    readonly allow: (...rules: ReadonlyArray<Rule>) => Effect.Effect<void>
    readonly deny: (...rules: ReadonlyArray<Rule>) => Effect.Effect<void>
  }
>()("test/support/SecureKafka") {
  static readonly layer = Layer.effect(
    SecureKafka,
    Effect.gen(function* () {
      const directory = yield* Effect.acquireRelease(
        Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "paid-once-tls-"))),
        (directory) => Effect.sync(() => fs.rmSync(directory, { recursive: true, force: true }))
      )
      const { file, ...certificates } = yield* makeCertificates(directory)
      const names = Object.keys(listeners) as ReadonlyArray<ListenerName>
      const kafka = yield* LocalKafka.make({
        nodes: 1,
        listeners: names.map((name) => ({
          name: name.toUpperCase(),
          protocol: listeners[name].protocol
        })),
        scramUsers: ["SCRAM-SHA-256", "SCRAM-SHA-512"].map(
          (mechanism) => `${mechanism}=[name=${user},password="${password}"]`
        ),
        properties: {
          ...settingsOf(file),
          "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
          "super.users": "User:ANONYMOUS",
          // No test kills this one.
          "broker.session.timeout.ms": "60000"
        }
      })
      const admin = yield* connectedAdmin(kafka.bootstrapServers)
      return SecureKafka.of({
        ...certificates,
        server: (name) => kafka.listeners[names.indexOf(name)]!,
        plainServer: kafka.bootstrapServers,
        broker: kafka.brokers[0]!,
        allow: (...rules) => Effect.asVoid(Effect.promise(() => admin.createAcls({ acl: rules.map(entryOf) }))),
        deny: (...rules) => Effect.asVoid(Effect.promise(() => admin.deleteAcls({ filters: rules.map(entryOf) })))
      })
    }).pipe(Effect.orDie)
  )
}

const connectedAdmin = (server: string): Effect.Effect<ReturnType<Kafka["admin"]>, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const admin = new Kafka({ clientId: "rights", brokers: [server], logLevel: logLevel.NOTHING }).admin()
      await admin.connect()
      return admin
    }),
    (admin) => Effect.promise(() => admin.disconnect())
  )

const textOf = (file: string) => fs.readFileSync(file, "utf8")

/** Encrypted, with the service's user. */
export const userAccess = (
  { ca }: Pick<SecureKafka["Service"], "ca">,
  mechanism: Mechanism,
  changes: { readonly username?: string; readonly password?: string } = {}
): KafkaAccess => ({
  tls: { ca: textOf(ca) },
  sasl: { mechanism, username: changes.username ?? user, password: Redacted.make(changes.password ?? password) }
})

/** Encrypted, with a certificate as the user. */
export const certificateAccess = (
  { ca }: Pick<SecureKafka["Service"], "ca">,
  { cert, key }: Certificate
): KafkaAccess => ({ tls: { ca: textOf(ca), cert: textOf(cert), key: Redacted.make(textOf(key)) } })
