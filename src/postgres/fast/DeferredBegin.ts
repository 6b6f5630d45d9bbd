/**
 * A connection on which a transaction's BEGIN travels in one packet with the statement after it.
 *
 * The driver waits for the answer to each statement before it writes the next. For BEGIN that is a round trip for nothing, one of the three of
 * a transaction of one statement: it has no answer that anybody needs. So BEGIN is answered
 * here, at once, and written in front of whatever comes next. It stays safe if Postgres should refuse it: both lie before one Sync, and
 * Postgres skips up to a Sync what follows an error, so the statement can't run outside of a transaction. The caller sees the error as its
 * statement's, and for whoever goes on after that the connection is closed: nothing else runs outside of the transaction either.
 *
 * Only the very bytes are taken as which the driver writes an unprepared `BEGIN`, and only where all messages before it have come whole; all
 * else, and all that is encrypted, passes untouched.
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
/** Without a Sync of its own, and nobody needs a description of no rows. */
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

/** What Postgres answers to {@link asked}. */
const answer = Buffer.concat([parseComplete, bindComplete, noData, commandComplete, readyInTransaction])
/** The types of what it answers to {@link sent}, in order: the driver has had that already. */
const swallowed = [parseComplete, bindComplete, commandComplete].map((bytes) => bytes[0])
const errorResponse = message("E")[0]

/** A message's type and length. The length counts itself. */
const headBytes = 5
const leastLength = 4
/** A ReadyForQuery less its last byte. Whatever ends with one ends where a message does: a text has no zeros in it. */
const ready = readyInTransaction.subarray(0, -1)

/** Makes BEGIN wait on `socket`, which has been told to connect: that gives it its own `write`. */
export const install = (socket: Net.Socket): void => {
  const write = socket.write.bind(socket)
  const push = socket.push.bind(socket)
  /** A BEGIN has been answered and not been sent. */
  let isHeld = false
  /** A BEGIN was sent and refused. What comes now would run outside of the transaction. */
  let isRefused = false
  /** All that came so far has been whole messages, and none is to come. */
  let isAtRest = false
  /** How many of {@link swallowed} have come: all of them, when no BEGIN is held or on the wire. */
  let seen = swallowed.length
  /** The beginning of a message that came in parts. */
  let part: Buffer | undefined

  /** `bytes` less the answer to the BEGIN that was sent, or what of it is among them. */
  const withoutAnswer = (bytes: Buffer): Buffer => {
    const passed: Array<Buffer> = []
    let start = 0
    while (seen < swallowed.length) {
      const length = start + headBytes <= bytes.length ? bytes.readInt32BE(start + 1) : undefined
      if (length === undefined || start + 1 + length > bytes.length) {
        part = bytes.subarray(start)
        return Buffer.concat(passed)
      }
      // No message at all: the driver says what it thinks of that.
      if (length < leastLength) break
      const end = start + 1 + length
      if (bytes[start] === swallowed[seen]) seen++
      else {
        // The statement was skipped, and this is for the driver to take as its answer.
        if (bytes[start] === errorResponse) {
          isRefused = true
          seen = swallowed.length
        }
        // Notices and settings may come at any time.
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
    // As sending it would: the wait for what comes next begins now.
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
