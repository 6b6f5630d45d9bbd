/** The answer to what Node's parser refuses: a problem, written to the socket. There is no request and no response for it. */
import * as Http from "node:http"
import type { Socket } from "node:net"
import { contentType as problemType, Problem, toJson } from "./Problems.ts"
import * as SecurityHeaders from "./access/SecurityHeaders.ts"

/** How a request for headers alone begins. */
const head = Buffer.from("HEAD ")

const problemOf = (code: string | undefined): Problem => {
  switch (code) {
    case "HPE_HEADER_OVERFLOW":
      return new Problem({ status: 431, detail: `the headers are larger than ${Http.maxHeaderSize} bytes` })
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new Problem({ status: 408, detail: "the request did not arrive in time" })
    default:
      return new Problem({
        status: 400,
        detail: `the request is not valid HTTP${code === undefined ? "" : ` (${code})`}`
      })
  }
}

/** Listens to a server's `clientError`. Answers, and closes the connection. */
export const answerInvalid = (
  error: NodeJS.ErrnoException & { readonly rawPacket?: Buffer },
  socket: Socket & { readonly _httpMessage?: Http.ServerResponse | null }
): void => {
  // A second answer inside one that has begun would corrupt it.
  if (!socket.writable || error.code === "ECONNRESET" || socket._httpMessage?.headersSent === true) {
    socket.destroy()
    return
  }
  const problem = problemOf(error.code)
  const body = toJson(problem)
  // The answer to HEAD has no body: its client would take one for the next answer.
  const isHead = error.rawPacket?.subarray(0, head.length).equals(head) === true
  socket.end(
    `HTTP/1.1 ${problem.status} ${Http.STATUS_CODES[problem.status]}\r\nConnection: close\r\nContent-Type: ${problemType}\r\n` +
      `${SecurityHeaders.lines}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${isHead ? "" : body}`
  )
}
