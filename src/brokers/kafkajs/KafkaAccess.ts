/**
 * How this process proves itself to Kafka, and Kafka to it: TLS and SASL. And what a broker's refusal means, in a sentence that names the
 * variable to change.
 */
import { Redacted } from "effect"
import type { SASLOptions } from "kafkajs"
import { X509Certificate } from "node:crypto"
import * as net from "node:net"
import * as tls from "node:tls"

/** The SASL mechanisms that a user and a password are enough for. */
export type Mechanism = "plain" | "scram-sha-256" | "scram-sha-512"

/** Without `tls` the connection is plain text; without `sasl` there is no user but the certificate's. */
export interface KafkaAccess {
  readonly tls?: {
    /** The authorities that may vouch for a broker, as PEM. Default: those that Node trusts. */
    readonly ca?: string
    /** The certificate of this process, with its chain, and its key, as PEM. */
    readonly cert?: string
    readonly key?: Redacted.Redacted
  }
  readonly sasl?: {
    readonly mechanism: Mechanism
    readonly username: string
    readonly password: Redacted.Redacted
  }
}

/** kafkajs' options for the user. A new object for each client, because kafkajs writes into it. */
export const saslOptions = ({ sasl }: KafkaAccess): { sasl: SASLOptions } | {} =>
  sasl === undefined
    ? {}
    : {
        sasl: {
          mechanism: sasl.mechanism,
          username: sasl.username,
          password: Redacted.value(sasl.password)
        } as SASLOptions
      }

/**
 * Encrypts sockets, where the access asks for it. The broker's certificate must be valid, of a trusted authority, and for the name that is
 * connected to, whatever the environment says.
 */
export const makeSecure = ({ tls: settings }: KafkaAccess) => {
  if (settings === undefined) return undefined
  const { ca, cert, key } = settings
  const secureContext = tls.createSecureContext({
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key: Redacted.value(key) })
  })
  return (socket: net.Socket, host: string): tls.TLSSocket =>
    tls.connect({
      socket,
      host,
      secureContext,
      rejectUnauthorized: true,
      // An address is no server name (RFC 6066).
      ...(net.isIP(host) === 0 ? { servername: host } : {})
    })
}

/** kafkajs wraps errors in those of its retrier. This bounds the search. */
const maxDepth = 8

/** The error and its causes, the outermost first. */
const causesOf = (error: unknown): ReadonlyArray<Error> => {
  const causes: Array<Error> = []
  for (let current = error; causes.length < maxDepth && current instanceof Error; current = current.cause) {
    causes.push(current)
  }
  return causes
}

const untrusted: ReadonlySet<string> = new Set([
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "CERT_SIGNATURE_FAILURE"
])

/** An alert about the certificate of this process. Java sends the same one for most reasons. */
const ownCertificate = /^ERR_SSL_\S+_ALERT_(?:\w*CERTIFICATE\w*|UNKNOWN_CA|HANDSHAKE_FAILURE)$/

/** A sentence about TLS, for the codes of Node and OpenSSL. */
const explainTls = (
  code: string,
  message: string,
  { tls: settings }: KafkaAccess,
  nowMillis: number
): string | undefined => {
  if (code === "CERT_HAS_EXPIRED") return "its certificate has expired: renew it on the broker"
  if (code === "CERT_NOT_YET_VALID") return "its certificate is not valid yet: compare the clocks"
  if (untrusted.has(code)) {
    return settings?.ca === undefined
      ? "no authority that Node trusts has signed its certificate: set KAFKA_SSL_CA"
      : "no authority in KAFKA_SSL_CA has signed its certificate"
  }
  if (code === "ERR_TLS_CERT_ALTNAME_INVALID") {
    return "its certificate is for other names: KAFKA_BROKERS and the broker's advertised.listeners must use one of these"
  }
  if (ownCertificate.test(code)) {
    if (settings?.cert === undefined) {
      return "it demands a certificate of this service: set KAFKA_SSL_CERT and KAFKA_SSL_KEY"
    }
    const { validTo } = new X509Certificate(settings.cert)
    return Date.parse(validTo) < nowMillis
      ? `the certificate in KAFKA_SSL_CERT expired on ${new Date(validTo).toISOString().slice(0, 10)}`
      : "it does not accept the certificate in KAFKA_SSL_CERT: its ssl.truststore must hold the authority"
  }
  // Kafka ends a connection that begins with something else than it expects.
  return /disconnected before secure TLS connection/.test(message)
    ? "it ended the connection during TLS: set KAFKA_SSL to off, or name its TLS port in KAFKA_BROKERS"
    : undefined
}

/** The broker's own words, which kafkajs repeats. Its prefix alone also means a connection that broke meanwhile. */
const deniesUser = /^SASL .*authentication failed: Authentication failed/

/** A sentence about the user. */
const explainUser = (error: Error, { sasl, tls: settings }: KafkaAccess): string | undefined => {
  const isType = (type: string) => "type" in error && error.type === type
  if (
    sasl !== undefined &&
    (isType("UNSUPPORTED_SASL_MECHANISM") || /mechanism is not supported/.test(error.message))
  ) {
    return `it does not offer KAFKA_SASL_MECHANISM=${sasl.mechanism} on this port`
  }
  if (sasl !== undefined && (deniesUser.test(error.message) || isType("SASL_AUTHENTICATION_FAILED"))) {
    return `it does not accept the user "${sasl.username}": check KAFKA_SASL_USERNAME, KAFKA_SASL_PASSWORD and KAFKA_SASL_MECHANISM`
  }
  if (isType("ILLEGAL_SASL_STATE")) return "it demands no SASL on this port: unset KAFKA_SASL_MECHANISM"
  // A broker that finds something else than it demands ends the connection without a word.
  if (error.name === "KafkaJSConnectionClosedError" && sasl === undefined) {
    const missing = `${settings === undefined ? "TLS (KAFKA_SSL) or " : ""}a user (KAFKA_SASL_MECHANISM)`
    return `it closed the connection without an answer: it may demand ${missing}`
  }
  return undefined
}

/**
 * Why the broker and this process do not accept each other, as a sentence for the operator; undefined where that is not the reason. Never
 * contains a secret.
 */
export const explain = (error: unknown, access: KafkaAccess, nowMillis: number): string | undefined => {
  const causes = causesOf(error)
  const address = causes.flatMap((cause) => ("broker" in cause && typeof cause.broker === "string" ? cause.broker : []))
  for (const cause of causes) {
    const code = "code" in cause && typeof cause.code === "string" ? cause.code : ""
    const sentence = explainTls(code, cause.message, access, nowMillis) ?? explainUser(cause, access)
    if (sentence !== undefined) return `Kafka${address[0] === undefined ? "" : ` at ${address[0]}`}: ${sentence}`
  }
  return undefined
}

/** The user of this process, as an access list names it; undefined where only the broker knows it. */
export const principalOf = ({ sasl }: KafkaAccess): string | undefined =>
  sasl === undefined ? undefined : `User:${sasl.username}`
