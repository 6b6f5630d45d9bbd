/** Finds environment variables that look like one of ours and are none: `DATABSE_URL` starts an embedded Postgres. */
import * as Spelling from "./platform/Spelling.ts"

/** An unknown variable, and the one that was probably meant. */
export interface UnknownVariable {
  readonly name: string
  readonly meant: string | undefined
}

/**
 * Kubernetes and Docker set some variables for each service of a cluster, such as `KAFKA_SERVICE_HOST`, `KAFKA_PORT` and
 * `KAFKA_PORT_9092_TCP_ADDR`. A service may be called `kafka` or `gateway`. `GATEWAY_INTERFACE` is CGI's.
 */
const foreign =
  /(?:_SERVICE_(?:HOST|PORT(?:_\w+)?)|_PORT|_PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?|_ENV_\w+)$|^GATEWAY_INTERFACE$/

/** First words that are ours alone. Any unknown variable that begins with one of them is named. */
const oursAlone: ReadonlySet<string> = new Set(["OUTBOX", "INBOX"])

/** First words that are ours here, and other programs' too: Kafka's image has KAFKA_HEAP_OPTS. */
const oursToo: ReadonlySet<string> = new Set([
  "CONSUMER",
  "GATEWAY",
  "IDEMPOTENCY",
  "KAFKA",
  "MAIL",
  "PAYMENT",
  "SHUTDOWN",
  "SMTP",
  "TASK"
])

/** Letters by which a name with a first word of ours may differ. */
const prefixedSlips = 3

/** Letters by which any other name may differ. */
const slipsOf = (name: string): number => (name.length < 10 ? 1 : 2)

/** A shorter name is never meant, since it has too many neighbours: POST and PORTS are no slips for PORT. */
const shortestMeant = 5

const wordsOf = (name: string) => name.split("_")

/** The first two words: `GATEWAY_TIMEOUT` of `GATEWAY_TIMEOUT_SECONDS`. */
const stemOf = (name: string) => wordsOf(name).slice(0, 2).join("_")

const meantBy = (name: string, known: ReadonlyArray<string>): UnknownVariable | undefined => {
  const upper = name.toUpperCase()
  const [first = ""] = wordsOf(upper)
  const isPrefixed = oursAlone.has(first) || oursToo.has(first)
  const meant =
    Spelling.nearest(upper, known, isPrefixed ? prefixedSlips : slipsOf(upper)) ??
    (isPrefixed && upper.includes("_") ? known.find((one) => stemOf(one) === stemOf(upper)) : undefined)
  return meant !== undefined || oursAlone.has(first) ? { name, meant } : undefined
}

/** The names that look like one of `known` and are none of them. Only names are looked at: values may be secret. */
export const find = (names: ReadonlyArray<string>, known: ReadonlyArray<string>): ReadonlyArray<UnknownVariable> => {
  const candidates = known.filter(({ length }) => length >= shortestMeant)
  return names
    .filter((name) => /^[A-Za-z]\w{0,99}$/.test(name) && !known.includes(name) && !foreign.test(name))
    .flatMap((name) => meantBy(name, candidates) ?? [])
}

/** The sentence that names one. */
export const describe = ({ meant, name }: UnknownVariable): string =>
  `${name} is set, and this service reads no such variable${meant === undefined ? "" : `: is ${meant} meant?`}`
