/**
 * A Postgres connection that gives its password to nobody, and talks only to a server that knows it.
 *
 * The driver answers whatever the server asks for: also with the password in clear text, or with its MD5 hash. And it accepts a server that
 * asks for nothing. Whoever listens at the address of a dead server would get the password, and then the data. In SCRAM-SHA-256 both sides
 * prove that they know the password, and none sends it.
 *
 * Protocol: https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-START-UP and …/protocol-message-formats.html
 */
import type * as Net from "node:net"

/** The type of all authentication messages. */
const authentication = "R".charCodeAt(0)
/** What an authentication message says, as the number at its beginning. */
const isDone = 0
const isFinalProof = 12
/** The start of SASL and its next step. The driver accepts SCRAM-SHA-256 only, and checks the server's proof. */
const steps: ReadonlySet<number> = new Set([10, 11, isFinalProof])

/** A message's type and its length, which includes itself. */
const headBytes = 5
const leastLength = 4
/** Above all messages of an authentication: a salt and two nonces, or an error. */
const longestBytes = 16_384

/** Closes `socket` where the server asks for anything but SCRAM, or ends the authentication without its proof. To be called before any data. */
export const install = (socket: Net.Socket): void => {
  const push = socket.push.bind(socket)
  let pending: Buffer = Buffer.alloc(0)
  let isProven = false
  let isOver = false

  /** Why the server is refused that sends this authentication message. */
  const refusal = (code: number | undefined): string | undefined => {
    if (code === isDone) return isProven ? undefined : "it did not prove that it knows the password"
    return code !== undefined && steps.has(code)
      ? undefined
      : "it asks for the password in another way than SCRAM-SHA-256"
  }
  const refuse = (reason: string) => {
    socket.destroy(new Error(`this is not our Postgres server: ${reason}`))
    return false
  }

  socket.push = (chunk: Buffer | null) => {
    if (isOver || chunk === null) return push(chunk)
    pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk])
    // Only whole messages pass: the driver answers an authentication message as soon as it has arrived.
    let end = 0
    while (!isOver && end + headBytes <= pending.length) {
      const length = pending.readInt32BE(end + 1)
      if (length < leastLength || length > longestBytes) return refuse("it does not speak Postgres' protocol")
      const next = end + 1 + length
      if (next > pending.length) break
      if (pending[end] === authentication) {
        const code = length >= leastLength + 4 ? pending.readInt32BE(end + headBytes) : undefined
        const reason = refusal(code)
        if (reason !== undefined) return refuse(reason)
        isProven ||= code === isFinalProof
        isOver = code === isDone
      }
      end = next
    }
    const passed = isOver ? pending : pending.subarray(0, end)
    pending = pending.subarray(passed.length)
    return passed.length === 0 || push(passed)
  }
}
