/**
 * The bytes of a request's body, bounded in number and in pieces.
 *
 * A client decides how small the pieces of a chunked body are. In Node each is an object of more than a hundred bytes, from when it arrives.
 */
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Effect } from "effect"
import type { HttpServerRequest } from "effect/http"
import { IncomingMessage } from "node:http"
import type { Socket } from "node:net"
import { finished } from "node:stream"
import { GrowingBytes } from "../platform/GrowingBytes.ts"

/** Any client's pieces are larger on the average: they come from its buffers, or are lines or records. */
const leastPieceBytes = 64
/** A short body may come in pieces of any size. */
const freePieces = 1_000

/** The pieces that have come on a connection since nothing was under way on it. */
const arrived = new WeakMap<Socket, { pieces: number; bytes: number }>()

/** Nothing is under way on the connection any more: what came before is gone. */
export const forgetPieces = (socket: Socket): void => void arrived.delete(socket)

/**
 * A request whose connection is closed once bodies come on it in too many pieces. They count as they arrive: one read of the socket can bring ten
 * thousand, before anybody asks for the body, or for a key. They count for the connection, as requests that are pipelined wait for each other.
 */
export class CountedPieces extends IncomingMessage {
  override push(piece: Uint8Array | null): boolean {
    // Node goes on to parse what has arrived.
    if (this.socket.destroyed) return false
    if (piece === null) return super.push(piece)
    const count = arrived.get(this.socket) ?? { pieces: 0, bytes: 0 }
    arrived.set(this.socket, count)
    count.pieces += 1
    count.bytes += piece.length
    if (count.pieces <= freePieces + count.bytes / leastPieceBytes) return super.push(piece)
    this.socket.destroy()
    return false
  }
}

/** The body of a request that has arrived as a whole: nobody has to be waited for. Undefined while some of it is still to come. */
export const arrivedBody = (request: HttpServerRequest.HttpServerRequest): Uint8Array | undefined => {
  const source = NodeHttpServerRequest.toIncomingMessage(request) as IncomingMessage
  return source.complete ? (source.read() ?? new Uint8Array()) : undefined
}

/** Why a body could not be read. */
export type Unreadable = "too large" | "cut short"

/**
 * The body, of at most `maxBytes`, in one buffer: Effect's reader keeps the pieces until the last one has come. Of one that is too large the rest is read and dropped, so that the connection
 * goes on.
 */
export const read = (
  request: HttpServerRequest.HttpServerRequest,
  maxBytes: number
): Effect.Effect<Uint8Array, Unreadable> =>
  Effect.callback<Uint8Array, Unreadable>((resume) => {
    // Both servers speak HTTP/1.1 alone.
    const source = NodeHttpServerRequest.toIncomingMessage(request) as IncomingMessage
    const body = new GrowingBytes()
    const leave = () => {
      source.off("data", add)
      unwatch()
    }
    const add = (piece: Uint8Array) => {
      if (body.length + piece.length <= maxBytes) return body.add(piece)
      leave()
      source.resume()
      resume(Effect.fail("too large"))
    }
    const unwatch = finished(source, { writable: false }, (error) => {
      leave()
      resume(error == null ? Effect.succeed(body.bytes) : Effect.fail("cut short"))
    })
    source.on("data", add)
    return Effect.sync(leave)
  })
