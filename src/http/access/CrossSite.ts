/**
 * Requests that a page of another site lets its visitor's browser send. The browser sends some of them without asking the service first:
 * forms, and whatever a form could have sent. They are refused by their Origin, by the browser's word about
 * the site (`Sec-Fetch-Site`), and by the content type: no form can send JSON's.
 */
import type * as Http from "node:http"
import { type AllowedHosts, parseAuthority } from "./AllowedHosts.ts"
import { hasBody, unsupportedType } from "../Body.ts"
import { Problem } from "../Problems.ts"

/** Methods that change nothing, as HTTP defines it. */
export const safeMethods: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS"])

const forbidden = (detail: string) => new Problem({ status: 403, detail })

/** The problem of a request that a page of another site may have caused, or that has a form's content type; undefined for any other. */
export const refusal = (request: Http.IncomingMessage, hosts: AllowedHosts): Problem | undefined => {
  const { "content-type": type, origin, "sec-fetch-site": site } = request.headers
  if (origin !== undefined) {
    const match = /^https?:\/\/(.*)$/.exec(origin)
    const authority = match === null ? undefined : parseAuthority(match[1]!)
    // `null` stands for pages without an origin, which any site can make.
    if (authority === undefined || !hosts.isOrigin(authority, request)) {
      return forbidden("the Origin is none of this server's: PUBLIC_HOSTS names its hosts")
    }
  }
  if (safeMethods.has(request.method ?? "")) return undefined
  if (site === "cross-site") return forbidden("a page of another site must not send this request")
  return type === undefined && !hasBody(request.headers) ? undefined : unsupportedType(type)
}
