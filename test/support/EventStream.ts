/** A listener to server-sent events, as a browser is one: it parses the events, and remembers the last id. */
import { Effect, Scope } from "effect"
import * as Http from "node:http"
import { eventually } from "./Counters.ts"

export interface ServerEvent {
  readonly event: string
  readonly id: string | undefined
  // oxlint-disable-next-line typescript/no-explicit-any -- the tests look into events whose shape they assert on
  readonly data: any
}

/** An open stream. */
export interface EventStream {
  readonly status: number
  readonly headers: Http.IncomingHttpHeaders
  /** What came before events: the body of a refusal, for example. */
  readonly text: () => string
  readonly events: () => ReadonlyArray<ServerEvent>
  readonly comments: () => number
  /** Whether the server, or {@link cut}, has ended it. */
  readonly hasEnded: () => boolean
  readonly cut: () => void
  /** Waits for `count` events of this name. */
  readonly until: (event: string, count?: number) => Effect.Effect<ReadonlyArray<ServerEvent>>
}

const parse = (block: string): ServerEvent => {
  const fields = new Map(
    block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trimStart()])
  )
  const data = fields.get("data")
  return {
    event: fields.get("event") ?? "message",
    id: fields.get("id"),
    data: data === undefined ? undefined : JSON.parse(data)
  }
}

/** Listens until the scope closes. `headers` as a browser or a proxy sends them. */
export const listen = (
  url: string,
  headers: Readonly<Record<string, string>> = {},
  options: { readonly reads?: boolean } = {}
): Effect.Effect<EventStream, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.callback<EventStream>((resume) => {
      const request = Http.get(url, { agent: false, headers: { accept: "text/event-stream", ...headers } })
      request.once("error", (error) => resume(Effect.die(error)))
      request.once("response", (response) => {
        let text = ""
        let ended = false
        request.on("error", () => {})
        response.on("error", () => {})
        response.once("close", () => (ended = true))
        response.setEncoding("utf8")
        if (options.reads === false) response.pause()
        else response.on("data", (piece: string) => (text += piece))
        // Blocks end with an empty line; the last one may be half there.
        const blocks = () => text.split("\n\n").slice(0, -1)
        const events = () =>
          blocks()
            .filter((block) => block.includes("data:"))
            .map(parse)
        resume(
          Effect.succeed({
            status: response.statusCode!,
            headers: response.headers,
            text: () => text,
            events,
            comments: () => blocks().filter((block) => block.startsWith(":")).length,
            hasEnded: () => ended,
            cut: () => void response.destroy(),
            until: (event, count = 1) => {
              const found = () => events().filter((one) => one.event === event)
              return Effect.as(
                eventually(
                  `${count} events ${event}`,
                  Effect.sync(() => found().length >= count)
                ),
                []
              ).pipe(Effect.map(found))
            }
          })
        )
      })
    }),
    (stream) => Effect.sync(stream.cut)
  )
