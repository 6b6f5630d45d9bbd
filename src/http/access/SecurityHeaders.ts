/** Headers that tell a browser what it may not do with an answer. They stand on every answer of every server, whoever writes it. */
import { createHash } from "node:crypto"
import * as Http from "node:http"

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

type Named = Http.OutgoingHttpHeaders | Array<Http.OutgoingHttpHeader>

/**
 * An answer with the headers. One that its handler sets itself stays as it is. They are added when the head is written: Node takes much longer for
 * headers that are set before.
 */
export class SecuredResponse<Request extends Http.IncomingMessage> extends Http.ServerResponse<Request> {
  /** Names are in small letters. */
  override writeHead(status: number, reason?: string | Named, given?: Named) {
    const named = typeof reason === "object" ? reason : given
    // Nobody names them as a list, whose form would have to be kept.
    if (Array.isArray(named)) throw new TypeError("the headers of an answer must be an object")
    const all: Http.OutgoingHttpHeaders = { ...headers, ...named }
    for (const set of this.getHeaderNames()) if (named?.[set] === undefined) delete all[set]
    return super.writeHead(status, typeof reason === "string" ? reason : undefined, all)
  }
}
