/** How an environment variable is read: a parser for each kind of value. A parser that refuses a value says what is allowed. */
import { Config, Option, Redacted, Result, Schema } from "effect"
import { EmailAddress } from "./application/mail/MailTransport.ts"
import { type Authority, parseAuthority } from "./http/access/AllowedHosts.ts"
import type { RateLimit } from "./http/access/RateLimits.ts"
import { faultPoints } from "./FaultPoints.ts"
import * as FaultInjection from "./platform/FaultInjection.ts"
import * as HttpTarget from "./platform/HttpTarget.ts"
import type { FaultPoint } from "./platform/Faults.ts"
import * as Address from "./postgres/tls/Address.ts"
import type { Setting } from "./http/admin/SettingsInForce.ts"
import { presentable } from "./platform/StorableText.ts"

/** A value, or what is allowed in its place. */
export type Parsed<A> = Result.Result<A, string>

/** The characters of a value that an error shows. */
const maxShown = 200

/** Longer values are not shown at all: only up to here is looked for passwords. */
const maxSearched = 1_000

/** Leaves out what looks like `user:password@`: a person may have mixed up two variables. */
const withoutPasswords = (text: string) => text.slice(0, maxSearched).replaceAll(/\S*:\S*@/g, "…@")

/** A wrong value, as an error shows it. */
const shown = (text: string) =>
  text.length > maxSearched ? "the value" : `"${presentable(withoutPasswords(text), maxShown)}"`

/** What Kubernetes sets in each pod as `GATEWAY_PORT`, where the cluster has a service called `gateway`. */
const serviceLink = /^(?:tcp|udp|sctp):\/\/(?:\[[\da-f:.]+\]|[\d.]+):\d+$/

const isUnset = (name: string, text: string) => text === "" || (name.endsWith("_PORT") && serviceLink.test(text))

/** A variable. It has its default where it is unset or empty, or a port is a {@link serviceLink}. A secret's value is never shown. */
export const variable = <A>(
  name: string,
  parse: (text: string) => Parsed<A>,
  fallback: A,
  options: { readonly secret?: boolean } = {}
) =>
  Object.assign(
    Config.option(Config.String(name)).pipe(
      Config.map((found): Parsed<A> => {
        const text = Option.getOrElse(found, () => "").trim()
        if (isUnset(name, text)) return Result.succeed(fallback)
        return Result.mapError(
          parse(text),
          (allowed) => `${name}: ${options.secret ? "the value" : shown(text)} is not ${allowed}`
        )
      })
    ),
    {
      variableName: name,
      setting: Config.map(Config.option(Config.String(name)), (found): Omit<Setting, "description"> => {
        const text = Option.getOrElse(found, () => "").trim()
        const isDefault = isUnset(name, text)
        const isSecret = options.secret === true
        return {
          variable: name,
          value: isSecret ? null : isDefault ? textOf(fallback, parse) : presentable(text, maxSearched),
          isDefault,
          isSecret
        }
      })
    }
  )

/** A default as the environment would have it; null where there is none. */
const textOf = (value: unknown, parse: unknown): string | null => {
  if (typeof value === "boolean") return value ? "on" : "off"
  const parts = [value].flat().filter((one) => typeof one === "string" || typeof one === "number")
  const isTime = parse === duration || parse === durations
  return parts.length === 0 ? null : parts.map((one) => (isTime ? durationText(Number(one)) : one)).join(",")
}

/** In the largest unit that gives a whole number. */
const durationText = (millis: number): string => {
  const [unit, size] = Object.entries(unitMillis).findLast(([, size]) => millis % size === 0) ?? ["ms", 1]
  return `${millis / size}${unit}`
}

export const integer =
  (minimum: number, maximum: number) =>
  (text: string): Parsed<number> => {
    const value = Number(text)
    return /^-?\d+$/.test(text) && value >= minimum && value <= maximum
      ? Result.succeed(value)
      : Result.fail(`a whole number from ${minimum} to ${maximum}`)
  }

export const onOff = (text: string): Parsed<boolean> =>
  text === "on" ? Result.succeed(true) : text === "off" ? Result.succeed(false) : Result.fail("on or off")

export const oneOf =
  <const A extends string>(...values: ReadonlyArray<A>) =>
  (text: string): Parsed<A> => {
    const value = values.find((candidate) => candidate.toLowerCase() === text.toLowerCase())
    return value === undefined ? Result.fail(`one of ${values.join(", ")}`) : Result.succeed(value)
  }

export const text =
  (pattern: RegExp, allowed: string) =>
  (value: string): Parsed<string> =>
    pattern.test(value) ? Result.succeed(value) : Result.fail(allowed)

/** A page may ask this origin, so it leads nowhere but to the person's own machine. */
export const ownPort = text(/^http:\/\/127\.0\.0\.1:\d{1,5}$/, "http://127.0.0.1:PORT")

export const url =
  (protocols: ReadonlyArray<string>, allowed: string) =>
  (value: string): Parsed<string> =>
    URL.canParse(value) && protocols.includes(new URL(value).protocol) ? Result.succeed(value) : Result.fail(allowed)

/** libpq's URL of a Unix socket, `postgres://user@/database?host=/directory`, has no host. A URL of the standard that names a user needs one. */
const withHost = (value: string): string =>
  value.replace(/^(postgres(?:ql)?:\/\/(?:[^/?#@]*@)?)(?=[/?#]|$)/, "$1localhost")

/** The URL's parameters are checked too: a misspelt one of TLS would be a connection in clear text. */
export const postgresUrl = (value: string): Parsed<Redacted.Redacted> =>
  Result.flatMap(url(["postgres:", "postgresql:"], "a postgres:// URL")(withHost(value)), (text) =>
    Result.mapBoth(Address.parse(text), {
      onSuccess: () => Redacted.make(text),
      onFailure: (sentence) => `usable: ${sentence}`
    })
  )

/** The address of an HTTP server. Callers append paths to a `base`, so it has neither a query nor a fragment. */
const httpTarget =
  (isBase: boolean, allowed: string) =>
  (value: string): Parsed<HttpTarget.HttpTarget> =>
    Result.mapError(
      Result.filterOrFail(
        HttpTarget.parse(value),
        ({ url }) => !isBase || !/[?#]/.test(url),
        () => undefined
      ),
      () => allowed
    )

/** An address that paths are appended to. User and password in it are sent with each request, and shown nowhere. */
export const httpBase = httpTarget(true, "an http:// or https:// URL without a query")

/** An address that requests are sent to as it is. */
export const httpAddress = httpTarget(false, "an http:// or https:// URL")

export const brokers = (value: string): Parsed<ReadonlyArray<string>> => {
  const parts = value
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "")
  const valid =
    parts.length > 0 &&
    parts.every((part) => {
      const match = /^(?:[A-Za-z0-9._-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})$/.exec(part)
      return match !== null && Number(match[1]) >= 1 && Number(match[1]) <= 65_535
    })
  return valid ? Result.succeed(parts) : Result.fail("host:port, or several with commas between them")
}

/** `off`, `on`, or faults that are set from the start (`dispatcher.after-publish=crash`). */
export const faults = (value: string): Parsed<ReadonlyArray<readonly [FaultPoint, FaultInjection.Fault]> | undefined> =>
  value === "off"
    ? Result.succeed(undefined)
    : value === "on"
      ? Result.succeed([])
      : Result.mapError(
          FaultInjection.parse(value, faultPoints),
          (reason) => `off, on, or a list of faults: ${withoutPasswords(reason)}`
        )

export const millis = integer(1, 86_400_000)

const unitMillis: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** A time like `90s`, `5m`, `2h` or `1d`, in milliseconds. More than a year is taken for a mistaken unit. */
export const duration = (value: string): Parsed<number> => {
  const match = /^(\d{1,9})(ms|s|m|h|d)$/.exec(value)
  const result = match === null ? 0 : Number(match[1]) * (unitMillis[match[2] ?? ""] ?? 0)
  return result > 0 && result <= 366 * 86_400_000
    ? Result.succeed(result)
    : Result.fail("a time like 500ms, 30s, 5m, 2h or 1d, above 0 and below a year")
}

/** A comma-separated list of times. */
export const durations = (value: string): Parsed<ReadonlyArray<number>> => {
  const parts = value.split(",").map((part) => duration(part.trim()))
  return parts.length > 50 || parts.some(Result.isFailure)
    ? Result.fail("a list of at most 50 times like 30s,5m,2h,1d")
    : Result.succeed(parts.map((part) => Result.getOrThrow(part)))
}

/** A comma-separated list of hosts, with or without a port. */
export const publicHosts = (value: string): Parsed<ReadonlyArray<Authority>> => {
  const hosts = value.split(",").map((part) => parseAuthority(part.trim()))
  return hosts.length <= 100 && hosts.every((host) => host !== undefined)
    ? Result.succeed(hosts)
    : Result.fail("a comma-separated list of at most 100 hosts, as shop.example or shop.example:8443")
}

/** A rate like `600/1m`: so many requests in that time. */
export const rateLimit = (value: string): Parsed<RateLimit | "off"> => {
  if (value === "off") return Result.succeed("off")
  const [count = "", window = "", ...more] = value.split("/")
  const limit = integer(1, 1_000_000)(count)
  const windowMillis = duration(window)
  return more.length === 0 && Result.isSuccess(limit) && Result.isSuccess(windowMillis)
    ? Result.succeed({ limit: limit.success, windowMillis: windowMillis.success })
    : Result.fail("off, or a number of requests up to a million in a time, as 600/1m")
}

/** Three are enough to replace a secret while another replacement is still under way. More are a mistake, and cost time for each message. */
const maxSecrets = 3

/** Secrets with commas between them. */
export const secrets = (value: string): Parsed<ReadonlyArray<Redacted.Redacted>> => {
  const parts = value.split(",").map((part) => part.trim())
  return parts.length <= maxSecrets && parts.every((part) => /^\S{16,200}$/.test(part))
    ? Result.succeed(parts.map((part) => Redacted.make(part)))
    : Result.fail(`16 to 200 characters without spaces and commas, or up to ${maxSecrets} of them with commas between`)
}

/** ADMIN_TOKEN. It is sent in a header, which carries these characters unchanged. Sixteen random ones are as hard to guess as needed. */
export const adminToken = (value: string): Parsed<Redacted.Redacted> =>
  /^[\x21-\x7e]{16,200}$/.test(value)
    ? Result.succeed(Redacted.make(value))
    : Result.fail("16 to 200 ASCII characters without spaces; `openssl rand -base64 24` draws some")

/** `name=value`, comma separated, the values percent-encoded: as OpenTelemetry has it. */
export const headers = (value: string): Parsed<Readonly<Record<string, string>>> =>
  Result.try({
    try: () => {
      const pairs = value.split(",").map((pair) => /^\s*([\w-]+)\s*=(.*)$/.exec(pair))
      if (pairs.some((pair) => pair === null)) throw new Error()
      return Object.fromEntries(pairs.map((pair) => [pair![1]!.toLowerCase(), decodeURIComponent(pair![2]!.trim())]))
    },
    catch: () => "a list of name=value, comma separated"
  })

/** Only the user, the password and the server: nodemailer would take any option of its own from the query. */
export const smtpUrl = (value: string): Parsed<Redacted.Redacted> => {
  const parsed = URL.canParse(value) ? new URL(value) : undefined
  return parsed !== undefined &&
    ["smtp:", "smtps:"].includes(parsed.protocol) &&
    parsed.hostname !== "" &&
    ["", "/"].includes(parsed.pathname) &&
    parsed.search + parsed.hash === ""
    ? Result.succeed(Redacted.make(value))
    : Result.fail("smtp://host:port or smtps://host:port, with user:password@ in front of the host where it is needed")
}

export const mailAddress = (value: string): Parsed<EmailAddress> =>
  Schema.is(EmailAddress)(value) ? Result.succeed(value) : Result.fail("an address as shop@host.example")

/** Leaves room for the name: an address has at most 254 characters. */
export const mailHost = (value: string): Parsed<string> =>
  value.length <= 180 && Schema.is(EmailAddress)(`a@${value}`)
    ? Result.succeed(value)
    : Result.fail("a host name of at most 180 characters")
