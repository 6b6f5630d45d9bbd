/** Reads the body of another server's answer up to a limit. Effect's client over undici has none: `MaxBodySize` bounds servers only. */
import { Effect, Schema, Stream } from "effect"
import type { HttpClientError, HttpClientResponse } from "effect/http"
import { GrowingBytes } from "./GrowingBytes.ts"

/** The body is longer than its limit. The connection is closed. */
export class BodyTooLong extends Schema.TaggedError<BodyTooLong>()("BodyTooLong", { maxBytes: Schema.Int }) {
  override get message() {
    return `its answer is longer than ${this.maxBytes} bytes`
  }
}

/**
 * The body as text. Holds at most `maxBytes` and one chunk of it; a longer one is cut, and its connection closed, as it is when the reader is
 * interrupted. A caller reads every body, also one that it does not need: an unread one keeps its connection, and what has arrived on it.
 */
export const textOf = (
  response: HttpClientResponse.HttpClientResponse,
  maxBytes: number
): Effect.Effect<string, BodyTooLong | HttpClientError.HttpClientError> =>
  Effect.suspend(() => {
    const body = new GrowingBytes()
    return Effect.map(
      Stream.runForEach(response.stream, (chunk) => {
        if (body.length + chunk.length > maxBytes) return Effect.fail(new BodyTooLong({ maxBytes }))
        return Effect.sync(() => body.add(chunk))
      }),
      () => body.bytes.toString("utf8")
    )
  })
