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
 * Everything else passes unchanged. With our TLS (`postgres/tls/Sockets.ts`) it works, too: messages are plain there.
 *
 * Protocol: https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-EXT-QUERY and …/protocol-message-formats.html
 */
import { PgProtocol, PgTypes } from "@effect/sql-pg"
import { Result } from "effect"
import type * as Net from "node:net"
import { beginStatement } from "../../platform/TransactionControl.ts"

const parse = Result.getOrThrow(PgProtocol.encodeParse({ name: "", query: beginStatement, parameterTypes: [] }))
const encodeBind = PgProtocol.makeBindEncoder(PgTypes.writeParameter, PgTypes.isTextFormat)
const bind = Result.getOrThrow(encodeBind({ portal: "", statement: "", parameters: [] }))
const describe = PgProtocol.encodeDescribe({ target: "portal", name: "" })
const execute = PgProtocol.encodeExecute({ portal: "", maxRows: 0 })

const asked = Buffer.concat([parse, bind, describe, execute, PgProtocol.encodeSync()])
/** Without a Sync of its own, and without the description of a result that has no rows. */
const sent = Buffer.concat([parse, bind, execute])

const message = (type: string, body = "") => {
  const length = Buffer.alloc(4)
  length.writeInt32BE(length.length + body.length)
  return Buffer.concat([Buffer.from(type), length, Buffer.from(body)])
}
const parseComplete = message("1")
const bindComplete = message("2")
const noData = message("n")
const commandComplete = message("C", "BEGIN\0")
const readyInTransaction = message("Z", "T")

/** Postgres' answer to {@link asked}. */
const answer = Buffer.concat([parseComplete, bindComplete, noData, commandComplete, readyInTransaction])
/** The message types of its answer to {@link sent}, in order. They are dropped, because the driver already has its answer. */
const swallowed = [parseComplete, bindComplete, commandComplete].map((bytes) => bytes[0])
const errorResponse = message("E")[0]

/** A message's type and length field. The length includes itself. */
const headBytes = 5
const leastLength = 4
/** A ReadyForQuery without its last byte. Bytes that end with it end at a message's end, because texts contain no zero bytes. */
const ready = readyInTransaction.subarray(0, -1)

/** Defers BEGIN on `socket`. To be called after `connect`, which gives the socket its own `write`. */
export const install = (socket: Net.Socket): void => {
  const write = socket.write.bind(socket)
  const push = socket.push.bind(socket)
  /** A BEGIN is answered and not yet sent. */
  let isHeld = false
  /** A BEGIN was sent and refused: the next statement would run outside of a transaction. */
  let isRefused = false
  /** All messages have arrived completely. The driver writes BEGIN only where no answer is outstanding. */
  let isAtRest = false
  /** How many of {@link swallowed} have arrived: all of them while no BEGIN is held or sent. */
  let seen = swallowed.length
  /** The beginning of a message that arrives in parts. */
  let part: Buffer | undefined

  /** `bytes` without the part of the BEGIN's answer that they contain. */
  const withoutAnswer = (bytes: Buffer): Buffer => {
    const passed: Array<Buffer> = []
    let start = 0
    while (seen < swallowed.length) {
      const length = start + headBytes <= bytes.length ? bytes.readInt32BE(start + 1) : undefined
      if (length === undefined || start + 1 + length > bytes.length) {
        part = bytes.subarray(start)
        return Buffer.concat(passed)
      }
      // Not a message: the driver reports it.
      if (length < leastLength) break
      const end = start + 1 + length
      if (bytes[start] === swallowed[seen]) seen++
      else {
        // The statement was skipped, and the driver gets this error as its answer.
        if (bytes[start] === errorResponse) {
          isRefused = true
          seen = swallowed.length
        }
        // Notices and parameter changes may arrive at any time.
        passed.push(bytes.subarray(start, end))
      }
      start = end
    }
    return passed.length === 0 ? bytes.subarray(start) : Buffer.concat([...passed, bytes.subarray(start)])
  }

  socket.write = (chunk: Uint8Array, ...rest: ReadonlyArray<never>) => {
    if (isRefused) {
      socket.destroy(new Error("Postgres refused to begin this transaction"))
      return false
    }
    if (isHeld) {
      isHeld = false
      return write(Buffer.concat([sent, chunk]), ...rest)
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
    isAtRest = chunk.subarray(-readyInTransaction.length, -1).equals(ready)
    if (seen === swallowed.length) return push(chunk)
    const bytes = part === undefined ? chunk : Buffer.concat([part, chunk])
    part = undefined
    const rest = withoutAnswer(bytes)
    return rest.length === 0 || push(rest)
  }
}
