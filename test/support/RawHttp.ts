/** Requests as bytes, for what no HTTP client would send, and answers as they came. */
import { Effect } from "effect"
import { connect } from "node:net"

export interface RawAnswer {
  readonly status: number
  /** By names in small letters. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

const parse = (text: string): RawAnswer => {
  const [head = "", ...body] = text.split("\r\n\r\n")
  const [first = "", ...lines] = head.split("\r\n")
  return {
    status: Number(first.split(" ")[1]),
    headers: Object.fromEntries(
      lines.map((line) => [line.slice(0, line.indexOf(":")).toLowerCase(), line.slice(line.indexOf(":") + 1).trim()])
    ),
    body: body.join("\r\n\r\n")
  }
}

/** Sends these lines as the head of a request, then the body. Waits until the server closes: the head asks for that. */
export const sendRaw = (port: number, head: ReadonlyArray<string>, body = ""): Effect.Effect<RawAnswer> =>
  Effect.callback((resume) => {
    const socket = connect(port, "127.0.0.1")
    let received = ""
    socket.on("data", (chunk) => (received += chunk.toString("latin1")))
    socket.on("error", () => {})
    socket.on("close", () => resume(Effect.succeed(parse(received))))
    socket.write(`${[...head, "Connection: close"].join("\r\n")}\r\n\r\n${body}`)
    return Effect.sync(() => socket.destroy())
  })
