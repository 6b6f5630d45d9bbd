/** Sends a request over a socket of its own, and judges the answer. */
import { Effect, Redacted } from "effect"
import * as Http from "node:http"
import { signatureHeader } from "../../src/application/GatewayWebhook.ts"
import * as SignedMessage from "../../src/platform/SignedMessage.ts"
import type { ApiDocument } from "../support/ApiDocument.ts"
import { bytesOf, type FuzzRequest } from "./FuzzRequest.ts"

/** No answer may take longer, but for the doctor's: it watches what stands still, for two minutes at most. */
const answerMillis = 10_000
const doctorMillis = 120_000

const limitMillisOf = ({ endpoint }: FuzzRequest): number =>
  endpoint === "/admin/doctor" ? doctorMillis : answerMillis

/** Above every answer of the service by far. */
const maxAnswerBytes = 100_000_000

/** The limit is counted in steps. A machine that stood still takes one step, however long it stood. */
const tickMillis = 250

export type Outcome =
  | {
      readonly _tag: "Answer"
      readonly status: number
      readonly headers: Http.IncomingHttpHeaders
      readonly text: string
    }
  | { readonly _tag: "Late" }
  /** The connection was refused, or ended before the answer did. */
  | { readonly _tag: "Broken"; readonly reason: string }

export const send = (url: string, request: FuzzRequest, secret: string): Effect.Effect<Outcome> =>
  Effect.callback<Outcome>((resume) => {
    const body = bytesOf(request.body)
    const isChunked = request.headers.some(([name]) => name === "transfer-encoding")
    const signed: ReadonlyArray<readonly [string, string]> = request.isSigned
      ? [[signatureHeader, SignedMessage.sign(Redacted.make(secret), Math.floor(Date.now() / 1000), body.toString())]]
      : []
    const { host, hostname, port } = new URL(url)
    const headers = [
      ...(request.headers.some(([name]) => name === "host") ? [] : [["host", host] as const]),
      ...request.headers,
      ...signed,
      // Node's client sends a POST without a length in chunks, which a request without a body does not do.
      ...(isChunked || (request.body === undefined && request.method !== "POST")
        ? []
        : [["content-length", String(body.length)] as const])
    ]
    const finish = (outcome: Outcome) => {
      clearInterval(watch)
      sent.destroy()
      resume(Effect.succeed(outcome))
    }
    const sent = Http.request({
      hostname,
      port,
      agent: false,
      method: request.method,
      path: request.target,
      headers: headers.flat()
    })
    sent.on("error", (error: NodeJS.ErrnoException) => finish({ _tag: "Broken", reason: error.code ?? error.message }))
    sent.on("response", (response) => {
      const chunks: Array<Buffer> = []
      let length = 0
      response.on("data", (chunk: Buffer) => {
        length += chunk.length
        chunks.push(chunk)
        if (length > maxAnswerBytes) finish({ _tag: "Broken", reason: `an answer above ${maxAnswerBytes} bytes` })
      })
      response.on("error", (error: NodeJS.ErrnoException) =>
        finish({ _tag: "Broken", reason: error.code ?? error.message })
      )
      response.on("end", () =>
        finish({
          _tag: "Answer",
          status: response.statusCode ?? 0,
          headers: response.headers,
          text: Buffer.concat(chunks).toString()
        })
      )
    })
    let ticks = 0
    const watch = setInterval(() => {
      ticks += 1
      if (ticks * tickMillis > limitMillisOf(request)) finish({ _tag: "Late" })
    }, tickMillis)
    sent.end(body.length === 0 ? undefined : body)
    return Effect.sync(() => {
      clearInterval(watch)
      sent.destroy()
    })
  })

/** What is wrong with an outcome: which rule it breaks, and a sentence. */
export interface Fault {
  readonly rule: `${"5xx" | "late" | "broken" | "document"}${string}`
  readonly what: string
}

export const judge = (document: ApiDocument, request: FuzzRequest, outcome: Outcome): Fault | undefined => {
  switch (outcome._tag) {
    case "Late":
      return { rule: "late", what: `no answer within ${limitMillisOf(request)} ms` }
    case "Broken":
      return { rule: "broken", what: `no answer: ${outcome.reason}` }
    case "Answer": {
      const { headers, status, text } = outcome
      if (status >= 500 && status !== 503) return { rule: "5xx", what: `${status} ${text.slice(0, 300)}` }
      const problems = document.problemsOf({
        method: request.method,
        target: request.target,
        status,
        text,
        header: (name) => headers[name]?.toString()
      })
      return problems.length === 0 ? undefined : { rule: `document ${status}`, what: problems.slice(0, 5).join("; ") }
    }
  }
}
