/** Headers that tell a browser what it may not do with an answer. They stand on every answer of every server, whoever writes it. */
import { createHash } from "node:crypto"
import type * as Http from "node:http"

/** The source of CSP that allows an inline element with this text. */
export const hashSource = (text: string): string => `'sha256-${createHash("sha256").update(text).digest("base64")}'`

const headers: Readonly<Record<string, string>> = {
  // Orders and payments are stale at once, and belong to nobody who uses the browser later.
  "cache-control": "no-store",
  // An answer that is shown as a page runs nothing, loads nothing, and stands in no frame.
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  // A page of another site can't embed an answer, and so can't measure it.
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  // A text that contains HTML stays text.
  "x-content-type-options": "nosniff"
}

/** The headers as lines of an answer that is written to the socket by hand. */
export const lines = Object.entries(headers)
  .map(([name, value]) => `${name}: ${value}\r\n`)
  .join("")

/** Sets the headers on each answer before its handler runs. A handler that sets one of them itself has its way. */
export const install = (server: Http.Server): void => {
  const set = (_: Http.IncomingMessage, response: Http.ServerResponse) => {
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value)
  }
  server.on("request", set)
  server.on("checkContinue", set)
  server.on("checkExpectation", set)
}
