/** Repairs of kafkajs' connections and their request queues. */
import { createRequire } from "node:module"
import type { Socket } from "node:net"

const require = createRequire(import.meta.url)

/**
 * **Defect.** Every connection of kafkajs 2.2.4 checks for waiting requests each millisecond, for ever, even with none waiting. This is
 * half of the CPU time of an idle consumer. Node 24 also prints a warning, because kafkajs asks for a negative timeout.
 *
 * **Repair.** A connection checks only while requests wait or the broker throttles it.
 *
 * Source: `scheduleCheckPendingRequests` in kafkajs/src/network/requestQueue/index.js.
 */
export const stopIdlePolling = () => {
  interface RequestQueue {
    readonly pending: ReadonlyArray<unknown>
    readonly throttledUntil: number
    scheduleCheckPendingRequests: () => void
  }
  const { prototype } = require("kafkajs/src/network/requestQueue/index.js") as { readonly prototype: RequestQueue }
  const schedule = prototype.scheduleCheckPendingRequests
  prototype.scheduleCheckPendingRequests = function (this: RequestQueue) {
    if (this.pending.length > 0 || this.throttledUntil > Date.now()) schedule.call(this)
  }
}

/** Every response begins with its size, an int32. */
const responseSizeBytes = 4

/**
 * **Defect.** kafkajs uses one `Connection` object for a sequence of sockets and mixes their states up:
 *
 * - After a connection breaks in the middle of a response, the partial response stays in the buffer. Every response on the next socket is then cut in
 *   the wrong places. The client waits for ever for responses that have arrived. Or it throws where nothing catches the error, and the process ends.
 *   Observed when brokers were killed for minutes.
 * - The end of the previous socket closes the current one, with all its requests.
 * - Two requests that find the connection closed open a socket each. The second one is left over, and its end minutes later closes the first.
 *
 * **Repair.** Opening starts with an empty buffer, ignores the previous socket, and is shared by all concurrent callers. A response that can't be
 * parsed closes the connection.
 *
 * Source: `connect` and `processData` in kafkajs/src/network/connection.js.
 */
export const reconnectCleanly = () => {
  interface Connection {
    socket: Socket | undefined
    chunks: Array<Buffer>
    bytesBuffered: number
    bytesNeeded: number
    isConnected: () => boolean
    connect: () => Promise<unknown>
    processData: (data: Buffer) => void
  }
  const { prototype } = require("kafkajs/src/network/connection.js") as { readonly prototype: Connection }
  const { connect, processData } = prototype
  const openings = new WeakMap<Connection, Promise<unknown>>()
  prototype.connect = function (this: Connection) {
    if (this.isConnected()) return connect.call(this)
    const opening = openings.get(this)
    if (opening !== undefined) return opening
    const previous = this.socket
    for (const event of ["data", "end", "timeout", "error"]) previous?.removeAllListeners(event)
    // A socket that is not read to its end never closes.
    previous?.on("error", () => undefined).resume()
    this.chunks = []
    this.bytesBuffered = 0
    this.bytesNeeded = responseSizeBytes
    const next = connect.call(this).finally(() => openings.delete(this))
    openings.set(this, next)
    return next
  }
  prototype.processData = function (this: Connection, data: Buffer) {
    try {
      processData.call(this, data)
    } catch (cause) {
      this.socket?.destroy(new Error("a response could not be read", { cause }))
    }
  }
}
