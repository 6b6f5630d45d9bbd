/**
 * Messages of Postgres in a stream of bytes.
 *
 * Protocol: https://www.postgresql.org/docs/current/protocol-message-formats.html
 */
import { PgProtocol, PgTypes } from "@effect/sql-pg"
import { Result } from "effect"

/** A message as Postgres sends it. */
export const message = (type: string, body: string | Buffer = ""): Buffer => {
  const bytes = Buffer.from(body as string)
  const length = Buffer.alloc(4)
  length.writeInt32BE(length.length + bytes.length)
  return Buffer.concat([Buffer.from(type), length, bytes])
}

const encodeBind = PgProtocol.makeBindEncoder(PgTypes.writeParameter, PgTypes.isTextFormat)
const bind = Result.getOrThrow(encodeBind({ portal: "", statement: "", parameters: [] }))
const describe = PgProtocol.encodeDescribe({ target: "portal", name: "" })
const execute = PgProtocol.encodeExecute({ portal: "", maxRows: 0 })

/** Ends a packet. After an error Postgres skips everything up to it. */
export const sync: Buffer = Buffer.from(PgProtocol.encodeSync())

/** The bytes of a statement without parameters, which is not prepared. */
export const framesOf = (query: string): { readonly asked: Buffer; readonly bare: Buffer } => {
  const parse = Result.getOrThrow(PgProtocol.encodeParse({ name: "", query, parameterTypes: [] }))
  return {
    /** As the driver writes it. */
    asked: Buffer.concat([parse, bind, describe, execute, sync]),
    /** Without a Sync of its own, and without the description of a result that has no rows. */
    bare: Buffer.concat([parse, bind, execute])
  }
}

export const parseComplete: Buffer = message("1")
export const bindComplete: Buffer = message("2")
/** Of a connection in a transaction. */
export const readyInTransaction: Buffer = message("Z", "T")

/** A ReadyForQuery without its last byte. Bytes that end with it end at a message's end, because texts contain no zero bytes. */
const ready = readyInTransaction.subarray(0, -1)
/** Whether the bytes end with a ReadyForQuery: all messages have arrived completely, and no answer is outstanding. */
export const areAtRest = (bytes: Buffer): boolean => bytes.subarray(-readyInTransaction.length, -1).equals(ready)

/** A message's type and length field. The length includes itself. */
const headBytes = 5
const leastLength = 4

/** Takes messages out of a stream, however it is cut into packets. */
export const sieve = () => {
  /** The beginning of a message that arrives in parts. */
  let part: Buffer | undefined
  /** What is handed on of `chunk`: the messages that are `kept`, by their types, while they are `watched`, and all that comes after these. */
  return (chunk: Buffer, watched: () => boolean, kept: (type: number) => boolean): Buffer => {
    const bytes = part === undefined ? chunk : Buffer.concat([part, chunk])
    part = undefined
    const passed: Array<Buffer> = []
    let start = 0
    while (watched()) {
      const length = start + headBytes <= bytes.length ? bytes.readInt32BE(start + 1) : undefined
      if (length === undefined || start + 1 + length > bytes.length) {
        part = bytes.subarray(start)
        return Buffer.concat(passed)
      }
      // Not a message: the driver reports it.
      if (length < leastLength) break
      const end = start + 1 + length
      if (kept(bytes[start]!)) passed.push(bytes.subarray(start, end))
      start = end
    }
    return passed.length === 0 ? bytes.subarray(start) : Buffer.concat([...passed, bytes.subarray(start)])
  }
}
