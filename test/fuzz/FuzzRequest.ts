/** A request as data: it can be sent, made smaller, and printed as a `curl` command. */

export type Body =
  | { readonly _tag: "Json"; readonly value: unknown }
  /** Bytes that no JSON value writes: half a document, not UTF-8, 1e400. */
  | { readonly _tag: "Raw"; readonly bytes: Buffer }

export interface FuzzRequest {
  readonly method: string
  /** The endpoint's template, or the path itself where the document has none. */
  readonly endpoint: string
  /** The path and query, as they are sent. */
  readonly target: string
  /** Names and values; a value has one character for each of its bytes. */
  readonly headers: ReadonlyArray<readonly [name: string, value: string]>
  readonly body: Body | undefined
  /** It carries the gateway's signature of its body, which is made when it is sent: a signature grows old. */
  readonly isSigned: boolean
}

export const bytesOf = (body: Body | undefined): Buffer =>
  body === undefined
    ? Buffer.alloc(0)
    : body._tag === "Raw"
      ? body.bytes
      : Buffer.from(JSON.stringify(body.value) ?? "null")

/** A header's text as the bytes that are sent, without the characters that end or break a header line. */
export const headerValue = (text: string): string =>
  Buffer.from(text.toWellFormed())
    .toString("latin1")
    // oxlint-disable-next-line no-control-regex -- to leave them out
    .replaceAll(/[\u0000-\u0008\u000a-\u001f\u007f]/g, "")

/** How much there is to read in a request: shrinking must make it less. */
export const sizeOf = ({ body, headers, isSigned, target }: FuzzRequest): number =>
  target.length +
  headers.reduce((sum, [name, value]) => sum + name.length + value.length + 1, 0) +
  (body === undefined ? 0 : bytesOf(body).length + 1) +
  (isSigned ? 1 : 0)
