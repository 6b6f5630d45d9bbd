/**
 * The cookie of a session. Scripts can't read it (HttpOnly), and the browser sends it with requests of this site's pages alone (SameSite).
 *
 * To a browser all ports of a host are one site, and share their cookies. Therefore the name has the port: two services on one machine don't end each
 * other's sessions. And a request that a page of another port may have caused counts as one without a cookie.
 */
import { Duration } from "effect"
import { HttpServerResponse } from "effect/http"
import type * as Http from "node:http"
import { parseAuthority } from "./AllowedHosts.ts"
import { safeMethods } from "./CrossSite.ts"
import { lifeMillis } from "./Sessions.ts"

/** The name without a port in the Host header; else `_` and the port follow. */
export const baseName = "paid_once_session"

const nameOf = ({ headers }: Http.IncomingMessage): string => {
  const port = parseAuthority(headers.host ?? "")?.port
  return port === undefined ? baseName : `${baseName}_${port}`
}

/**
 * Whether the request comes from a page of ours, or from no page. CrossSite.ts has compared its Origin, where it has one. A browser sends it
 * with every request that may change something. To a read it adds its own word about the site.
 */
const isOfOurPage = ({ headers, method }: Http.IncomingMessage): boolean =>
  safeMethods.has(method ?? "")
    ? [undefined, "same-origin", "none"].includes(headers["sec-fetch-site"])
    : headers.origin !== undefined

const idsIn = (request: Http.IncomingMessage): ReadonlyArray<string> => {
  const prefix = `${nameOf(request)}=`
  return (request.headers.cookie ?? "")
    .split(";")
    .map((pair) => pair.trim())
    .flatMap((pair) => (pair.startsWith(prefix) ? [pair.slice(prefix.length)] : []))
}

/** The ids in the request's cookies; none where another site's page may have caused it. */
export const idsOf = (request: Http.IncomingMessage): ReadonlyArray<string> =>
  isOfOurPage(request) ? idsIn(request) : []

/** The ids that do not count, for want of an Origin: a program has sent them, and should be told. */
export const idsWithoutOrigin = (request: Http.IncomingMessage): ReadonlyArray<string> =>
  !safeMethods.has(request.method ?? "") && !isOfOurPage(request) ? idsIn(request) : []

const options = (request: Http.IncomingMessage) => ({
  path: "/",
  httpOnly: true,
  sameSite: "strict" as const,
  // TLS ends in front of the service. The page's own scheme is what its browser says, and no page can write that header.
  secure: request.headers.origin?.startsWith("https:") === true
})

/** The answer, with the cookie of this session. */
export const set = (
  response: HttpServerResponse.HttpServerResponse,
  request: Http.IncomingMessage,
  id: string
): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.setCookieUnsafe(response, nameOf(request), id, {
    ...options(request),
    maxAge: Duration.millis(lifeMillis)
  })

/** The answer, which makes the browser forget the cookie. */
export const clear = (
  response: HttpServerResponse.HttpServerResponse,
  request: Http.IncomingMessage
): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.expireCookieUnsafe(response, nameOf(request), options(request))
