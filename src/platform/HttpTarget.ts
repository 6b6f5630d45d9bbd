/** The address of another company's server, as an operator gives it: with user and password in it, which must be shown nowhere. */
import { Redacted, Result } from "effect"

/** An address that may be printed, and the credentials that came with it. */
export interface HttpTarget {
  /** Without user and password. */
  readonly url: string
  /** The header `authorization` for each request, where the address has a user or a password (RFC 7617). */
  readonly authorization: Redacted.Redacted | undefined
}

const basic = (user: string, password: string) =>
  Redacted.make(`Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`)

/** Takes user and password out of an http or https URL. Fails on any other text. */
export const parse = (text: string): Result.Result<HttpTarget, undefined> =>
  Result.try({
    try: () => {
      const url = new URL(text)
      if (url.protocol !== "http:" && url.protocol !== "https:") throw new Error("another protocol")
      const { password, username } = url
      if (username + password === "") return { url: text, authorization: undefined }
      const authorization = basic(decodeURIComponent(username), decodeURIComponent(password))
      url.username = ""
      url.password = ""
      // A path that the operator has not written is not added: callers append theirs.
      return { url: /^[^/]*\/\/[^/?#]*$/.test(text) ? url.origin : url.href, authorization }
    },
    catch: () => undefined
  })

/** The headers of each request to the target. */
export const headersOf = ({ authorization }: Pick<HttpTarget, "authorization">): Readonly<Record<string, string>> =>
  authorization === undefined ? {} : { authorization: Redacted.value(authorization) }
