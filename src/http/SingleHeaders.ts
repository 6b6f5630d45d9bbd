/** Refuses headers that a request may have once, and has twice: another reader on the way may have taken the other one. */
import type { IncomingMessage } from "node:http"
import { badRequest, type Problem } from "./Problems.ts"

/** Headers with one value. Node keeps the first of some, and joins others with a comma. */
const single = [
  "host",
  "authorization",
  "content-encoding",
  "content-type",
  "gateway-signature",
  "idempotency-key",
  "origin",
  "x-operator"
]

/**
 * The problem of a request that repeats such a header, or that has no host; undefined without one.
 *
 * Source: RFC 9112, section 3.2 (400 for a request of HTTP/1.1 without exactly one Host).
 */
export const singleHeaders = ({ headers, httpVersion, rawHeaders }: IncomingMessage): Problem | undefined => {
  if (headers.host === undefined && httpVersion === "1.1") {
    return badRequest([{ in: "header", pointer: "/host", message: "is required" }])
  }
  // Node has one entry for each name.
  if (rawHeaders.length === 2 * Object.keys(headers).length) return undefined
  const counts = new Map<string, number>()
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index]!.toLowerCase()
    counts.set(name, (counts.get(name) ?? 0) + 1)
  }
  const repeated = single.filter((name) => (counts.get(name) ?? 0) > 1)
  return repeated.length === 0
    ? undefined
    : badRequest(repeated.map((name) => ({ in: "header", pointer: `/${name}`, message: "must be there once" })))
}
