/** How an environment variable is read: a parser for each kind of value. A parser that refuses a value says what is allowed. */
import { Config, Option, Redacted, Result, Schema } from "effect"
import { EmailAddress } from "./application/mail/MailTransport.ts"
import * as FaultInjection from "./platform/FaultInjection.ts"
import type { FaultPoint } from "./platform/Faults.ts"

/** A value, or what is allowed in its place. */
export type Parsed<A> = Result.Result<A, string>

/** A variable. It has its default where it is unset or empty. A secret's value is never shown. */
export const variable = <A>(
  name: string,
  parse: (text: string) => Parsed<A>,
  fallback: A,
  options: { readonly secret?: boolean } = {}
) =>
  Config.option(Config.String(name)).pipe(
    Config.map((found): Parsed<A> => {
      const text = Option.getOrElse(found, () => "").trim()
      if (text === "") return Result.succeed(fallback)
      return Result.mapError(
        parse(text),
        (allowed) => `${name}: ${options.secret ? "the value" : `"${text}"`} is not ${allowed}`
      )
    })
  )

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

export const url =
  (protocols: ReadonlyArray<string>, allowed: string) =>
  (value: string): Parsed<string> =>
    URL.canParse(value) && protocols.includes(new URL(value).protocol) ? Result.succeed(value) : Result.fail(allowed)

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
      : Result.mapError(FaultInjection.parse(value), (reason) => `off, on, or a list of faults: ${reason}`)

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
