/**
 * Sends a transaction's BEGIN in one packet with the statement after it.
 *
 * The driver waits for the answer to each statement before it writes the next one. A transaction of one statement takes three round
 * trips, and the answer to BEGIN carries no information. So this file answers BEGIN at once, and writes it in front of the next packet.
 *
 * **A refused BEGIN is safe.** BEGIN and the statement are followed by one Sync, and after an error Postgres skips everything up to the
 * Sync, so the statement can't run outside of a transaction. The driver gets the error as the statement's answer. The next packet closes
 * the connection, so no later statement runs outside of the transaction either.
 *
 * Only the exact bytes of the driver's unprepared `BEGIN` are deferred, and only after all messages before it have arrived completely.
 * Everything else, and every encrypted connection, passes unchanged.
 *
 * Protocol: https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-EXT-QUERY
 */
import type * as Net from "node:net"
import { beginStatement } from "../../platform/TransactionControl.ts"
import * as Messages from "./Messages.ts"

const { asked, bare } = Messages.framesOf(beginStatement)

const noData = Messages.message("n")
const commandComplete = Messages.message("C", "BEGIN\0")

/** Postgres' answer to {@link asked}. */
const answer = Buffer.concat([
  Messages.parseComplete,
  Messages.bindComplete,
  noData,
  commandComplete,
  Messages.readyInTransaction
])
/** The message types of its answer to {@link bare}, in order. They are dropped, because the driver already has its answer. */
const swallowed = [Messages.parseComplete, Messages.bindComplete, commandComplete].map((bytes) => bytes[0])
const errorResponse = Messages.message("E")[0]

/** Defers BEGIN on `socket`. To be called after `connect`, which gives the socket its own `write`. */
export const install = (socket: Net.Socket): void => {
  const write = socket.write.bind(socket)
  const push = socket.push.bind(socket)
  const sieve = Messages.sieve()
  /** A BEGIN is answered and not yet sent. */
  let isHeld = false
  /** A BEGIN was sent and refused: the next statement would run outside of a transaction. */
  let isRefused = false
  let isAtRest = false
  /** How many of {@link swallowed} have arrived: all of them while no BEGIN is held or sent. */
  let seen = swallowed.length

  const isOwed = () => seen < swallowed.length
  /** Whether a message is none of the BEGIN's answer. Notices and parameter changes may arrive at any time. */
  const isOther = (type: number) => {
    if (type === swallowed[seen]) {
      seen++
      return false
    }
    // The statement was skipped, and the driver gets this error as its answer.
    if (type === errorResponse) {
      isRefused = true
      seen = swallowed.length
    }
    return true
  }

  socket.write = (chunk: Uint8Array, ...rest: ReadonlyArray<never>) => {
    if (isRefused) {
      socket.destroy(new Error("Postgres refused to begin this transaction"))
      return false
    }
    if (isHeld) {
      isHeld = false
      return write(Buffer.concat([bare, chunk]), ...rest)
    }
    if (!isAtRest || chunk.length !== asked.length || !asked.equals(chunk)) return write(chunk, ...rest)
    isHeld = true
    seen = 0
    // As a write would do: the wait for the next data begins now.
    if (socket.timeout !== undefined && socket.timeout > 0) socket.setTimeout(socket.timeout)
    push(answer)
    return true
  }
  socket.push = (chunk: Buffer | null) => {
    if (chunk === null) return push(chunk)
    isAtRest = Messages.areAtRest(chunk)
    if (!isOwed()) return push(chunk)
    const others = sieve(chunk, isOwed, isOther)
    return others.length === 0 || push(others)
  }
}
