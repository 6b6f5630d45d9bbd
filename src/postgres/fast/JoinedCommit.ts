/**
 * Sends COMMIT in one packet with a transaction's last statement, and BEGIN in one with its first (DeferredBegin.ts).
 *
 * The driver waits for the answer to a statement before it writes COMMIT. `SingleStatement.last` knows which statement is the last, and announces it by a
 * query. This file answers that query itself, and writes COMMIT behind the statement in the next packet. Its answer is left out.
 *
 * **The statement has committed, or it fails.** Statement and COMMIT are followed by one Sync, and after an error Postgres skips everything up
 * to the Sync, so no COMMIT follows a statement that fails. If the COMMIT fails, as by a deferred constraint, its error is the statement's answer.
 *
 * A query that arrives while a message is incomplete is passed on. Postgres gives it no row, and the transaction ends as usual.
 *
 * Protocol: https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-EXT-QUERY
 */
import { Layer } from "effect"
import type * as Net from "node:net"
import * as SingleStatement from "../../platform/SingleStatement.ts"
import { SocketSetup } from "../Database.ts"
import * as DeferredBegin from "./DeferredBegin.ts"
import * as Messages from "./Messages.ts"

const { asked } = Messages.framesOf(SingleStatement.announcement)
const commit = Buffer.concat([Messages.framesOf("COMMIT").bare, Messages.sync])

/** A number of zero, of columns or of values. */
const none = Buffer.alloc(2)
const commandComplete = Messages.message("C", "SELECT 1\0")
/** One row without columns: what {@link SingleStatement.last} takes for a promise. */
const promise = Buffer.concat([
  Messages.parseComplete,
  Messages.bindComplete,
  Messages.message("T", none),
  Messages.message("D", none),
  commandComplete,
  Messages.readyInTransaction
])
/** The message types of an answer to COMMIT. */
const ofCommit = new Set([Messages.parseComplete, Messages.bindComplete, commandComplete].map((bytes) => bytes[0]))
const readyForQuery = Messages.readyInTransaction[0]

/** Joins BEGIN and COMMIT with the statements of `socket`. To be called after `connect`, which gives the socket its own `write`. */
export const install = (socket: Net.Socket): void => {
  const push = socket.push.bind(socket)
  const sieve = Messages.sieve()
  /** The next packet has the last statement. */
  let isAnnounced = false
  /** The last statement and its COMMIT are sent, and not yet answered. */
  let isEnding = false
  /** The statement has succeeded: what follows is about its COMMIT. */
  let isComplete = false
  let isAtRest = false

  const isOther = (type: number) => {
    if (type === readyForQuery) isEnding = false
    if (isComplete && ofCommit.has(type)) return false
    if (type === commandComplete[0]) isComplete = true
    return true
  }
  // DeferredBegin.ts hands its messages on to this one: without the answer to BEGIN.
  socket.push = (chunk: Buffer | null) => {
    if (chunk === null) return push(chunk)
    isAtRest = Messages.areAtRest(chunk)
    if (!isEnding) return push(chunk)
    const others = sieve(chunk, () => isEnding, isOther)
    return others.length === 0 || push(others)
  }
  DeferredBegin.install(socket)
  const write = socket.write.bind(socket)
  socket.write = (chunk: Uint8Array, ...rest: ReadonlyArray<never>) => {
    if (isAtRest && chunk.length === asked.length && asked.equals(chunk)) {
      isAnnounced = true
      // As a write would do: the wait for the next data begins now.
      if (socket.timeout !== undefined && socket.timeout > 0) socket.setTimeout(socket.timeout)
      push(promise)
      return true
    }
    if (!isAnnounced) return write(chunk, ...rest)
    isAnnounced = false
    if (!Messages.sync.equals(chunk.subarray(-Messages.sync.length))) {
      socket.destroy(new Error("the last statement of a transaction is not a packet of its own"))
      return false
    }
    isEnding = true
    isComplete = false
    return write(Buffer.concat([chunk.subarray(0, -Messages.sync.length), commit]), ...rest)
  }
}

/** Pools below it send transactions in fewer packets, and use cases end them so. */
export const layer = Layer.mergeAll(
  Layer.succeed(SocketSetup, install),
  Layer.succeed(SingleStatement.JoinedCommit, true)
)
