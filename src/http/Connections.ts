/**
 * The open connections of a server, what is under way on each, and their bounds.
 *
 * Above a number of connections a new one takes the place of the one that waits for its client for longest: health can always be asked. A
 * connection is closed after too many requests without an answer, and after an answer that its client does not read in time.
 */
import type * as Http from "node:http"
import type * as Net from "node:net"
import * as Members from "../platform/Members.ts"
import { forgetPieces } from "./RequestBytes.ts"

/** A request that is being answered, with what waits for the end of its answer. */
export interface Answering {
  readonly response: Http.ServerResponse
  readonly waiting: Array<() => void>
}

/** The state of an open connection. */
export interface Use {
  /** In the order of their requests, which is that of their answers. */
  readonly underWay: Array<Answering>
  /** When it was opened, or its last answer ended. */
  sinceMillis: number
  /** Bytes read by then. More bytes mean that a request has begun. */
  bytesRead: number
  /** An answer that is complete on our side, and when that was noticed. */
  unread: { readonly answer: Http.ServerResponse; readonly sinceMillis: number } | undefined
}

/** See {@link watch}. */
export interface ConnectionLimits {
  readonly connections: number
  readonly answerTimeoutMillis: number
  /** Called for each connection that a bound closes. */
  readonly onClosed: (reason: ClosedReason) => void
}

/** Why a connection was closed. */
export type ClosedReason = (typeof closedReasons)[number]
export const closedReasons = ["too many connections", "too many requests", "answer not read"] as const

/** The connections of a server. */
export interface Connections {
  readonly open: ReadonlyMap<Net.Socket, Use>
  /** Calls `done` once: when the answer is written to the last byte, or its connection has closed. */
  readonly onceAnswered: (response: Http.ServerResponse, done: () => void) => void
  /** Closes connections with answers that are not read. To be called every second or so. */
  readonly closeUnread: () => void
}

/**
 * Requests that a client may send on one connection without having read their answers. Browsers send one, and benchmarks some ten. Node
 * parses all that has arrived at once, so only the end of the connection stops it.
 */
export const maxUnanswered = 16

/** The events that announce a request. */
const announcing = new Set<string | symbol>(["request", "checkContinue", "checkExpectation"])

/**
 * Announces no request of a connection that is closed. Node parses all that one read has brought, so two thousand requests can follow the one that
 * closed it, and a fiber for each would keep the event loop busy.
 */
const ignoreDestroyed = (server: Http.Server) => {
  const emit = server.emit.bind(server)
  server.emit = (event: string | symbol, ...args: Array<unknown>) =>
    announcing.has(event) && (args[0] as Http.IncomingMessage).socket.destroyed ? true : emit(event as string, ...args)
}

/** Watches the server's connections from now on. */
export const watch = (
  server: Http.Server,
  { answerTimeoutMillis, connections, onClosed }: ConnectionLimits
): Connections => {
  ignoreDestroyed(server)
  const open = new Map<Net.Socket, Use>()

  const close = (socket: Net.Socket, reason: ClosedReason) => {
    if (socket.destroyed) return
    socket.destroy()
    onClosed(reason)
  }

  /** Since when the connection waits for its client; undefined while it waits for us. */
  const waitsSince = ({ sinceMillis, underWay, unread }: Use): number | undefined =>
    underWay.length === 0 ? sinceMillis : unread?.sinceMillis

  /** Makes room for a connection. Without room, all others are being worked on, and the new one is closed. */
  const makeRoomFor = (newcomer: Net.Socket) => {
    let longest = newcomer
    let longestMillis = Infinity
    open.forEach((use, socket) => {
      const sinceMillis = waitsSince(use) ?? Infinity
      if (sinceMillis >= longestMillis) return
      longest = socket
      longestMillis = sinceMillis
    })
    close(longest, "too many connections")
    open.delete(longest)
  }

  const answered = (use: Use, answering: Answering) => {
    Members.remove(use.underWay, answering)
    for (const done of answering.waiting.splice(0)) done()
  }

  server.on("connection", (socket: Net.Socket) => {
    const use: Use = { underWay: [], sinceMillis: performance.now(), bytesRead: 0, unread: undefined }
    if (open.size >= connections) makeRoomFor(socket)
    open.set(socket, use)
    socket.once("close", () => {
      open.delete(socket)
      for (const answering of use.underWay.splice(0)) answered(use, answering)
    })
  })

  const begin = ({ socket }: Http.IncomingMessage, response: Http.ServerResponse) => {
    const use = open.get(socket)
    if (use === undefined) return
    const answering: Answering = { response, waiting: [] }
    use.underWay.push(answering)
    // Written to the last byte. Whether Node reports the end of an answer that never gets there depends on its version.
    response.once("finish", () => {
      answered(use, answering)
      use.sinceMillis = performance.now()
      use.bytesRead = socket.bytesRead
      use.unread = undefined
      if (use.underWay.length === 0) forgetPieces(socket)
    })
    if (use.underWay.length > maxUnanswered) close(socket, "too many requests")
  }
  server.on("request", begin)
  // A request with `Expect: 100-continue` is announced by this event alone.
  server.on("checkContinue", begin)

  return {
    open,
    onceAnswered: (response, done) => {
      const answering = open.get(response.req.socket)?.underWay.find((one) => one.response === response)
      if (answering === undefined) done()
      else answering.waiting.push(done)
    },
    closeUnread: () => {
      const now = performance.now()
      open.forEach((use, socket) => {
        // Answers are sent in the order of their requests, so the first one is being sent.
        const answer = use.underWay[0]?.response
        if (answer === undefined || !answer.writableEnded) use.unread = undefined
        else if (use.unread?.answer !== answer) use.unread = { answer, sinceMillis: now }
        else if (now - use.unread.sinceMillis > answerTimeoutMillis) close(socket, "answer not read")
      })
    }
  }
}
