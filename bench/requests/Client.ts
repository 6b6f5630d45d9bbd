/** Clients in a process of their own: each keeps a connection, and sends its next request when the last one is answered. */
import * as Net from "node:net"
import { answer } from "../outside/Child.ts"

/** What the clients do. */
export interface Load {
  readonly url: string
  readonly method: "GET" | "POST"
  readonly path: string
  readonly body?: string
  readonly clients: number
  readonly millis: number
}

/** What came of it: the times of all answers in milliseconds. */
export interface Answers {
  readonly seconds: number
  readonly millis: ReadonlyArray<number>
}

const end = "\r\n\r\n"

/** The length of the first answer in `text`, with its head; undefined if it has not arrived as a whole. */
const firstAnswer = (text: string): number | undefined => {
  const head = text.indexOf(end)
  if (head < 0) return undefined
  const announced = /^content-length: *(\d+)/im.exec(text.slice(0, head))?.[1]
  // A chunked answer of these servers ends with an empty chunk.
  const last =
    announced === undefined ? text.indexOf(`0${end}`, head) + 1 + end.length : head + end.length + Number(announced)
  return last > head + end.length - 1 && text.length >= last ? last : undefined
}

const run = ({ body = "", clients, method, millis, path, url }: Load): Promise<Answers> => {
  const { host, hostname, port } = new URL(url)
  const length = body === "" ? "" : `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n`
  const request = `${method} ${path} HTTP/1.1\r\nHost: ${host}\r\n${length}\r\n${body}`
  const times: Array<number> = []
  const began = performance.now()
  const one = () =>
    new Promise<void>((resolve, reject) => {
      const socket = Net.connect(Number(port), hostname)
      let text = ""
      let sent = 0
      const next = () => {
        sent = performance.now()
        if (sent - began < millis) socket.write(request)
        else socket.end(resolve)
      }
      socket.setNoDelay(true)
      socket.on("connect", next)
      socket.on("error", reject)
      socket.on("data", (piece) => {
        text += piece.toString("latin1")
        const answered = firstAnswer(text)
        if (answered === undefined) return
        if (!/^HTTP\/1\.1 20[01] /.test(text)) return reject(new Error(`${method} ${path}: ${text.slice(0, 300)}`))
        times.push(performance.now() - sent)
        text = text.slice(answered)
        next()
      })
    })
  return Promise.all(Array.from({ length: clients }, one)).then(() => ({
    seconds: (performance.now() - began) / 1_000,
    millis: times
  }))
}

answer({ run })
