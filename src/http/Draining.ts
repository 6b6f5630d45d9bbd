/**
 * Stops a server so that its clients see nothing worse than a refused connection.
 *
 * Node's own `close` ends every idle connection at once. A client that is sending its next request on one gets a reset, and can't know whether
 * its payment was taken. Only an answer with `Connection: close` ends a kept connection safely. The stop has three steps:
 *
 * 1. New connections are refused.
 * 2. A connection that is used ends with its next answer.
 * 3. A connection that was idle for {@link silenceMillis} is closed: its client is unlikely to use it at that very moment.
 */
import { Deferred, Effect, Exit } from "effect"
import type * as Http from "node:http"
import * as Net from "node:net"
import type { Connections } from "./Connections.ts"

/**
 * How long a connection is idle before it is closed. A client under load sends its next request within some hundred milliseconds, and within
 * about a second on a busy machine. With idle clients a stop takes this long.
 */
const silenceMillis = 2_000

/** How often idle connections are looked for. */
const lookMillis = 50

/** The drain of a server that is about to listen. */
export interface Draining {
  /**
   * Stops accepting, waits until all connections have ended, at most `graceMillis`, and closes the rest. Made for a finalizer: it is bounded,
   * and can't be interrupted.
   */
  readonly drain: (graceMillis: number) => Effect.Effect<void>
}

/** The drain of a server with these connections. */
export const make = (server: Http.Server, { open }: Pick<Connections, "open">): Draining => {
  let isDraining = false

  /** Makes the answer the connection's last one. Without effect where its head has been sent. */
  const makeLast = (response: Http.ServerResponse) => {
    response.shouldKeepAlive = false
  }
  const begin = (_: unknown, response: Http.ServerResponse) => {
    if (isDraining) makeLast(response)
  }
  server.on("request", begin)
  server.on("checkContinue", begin)

  const closeSilent = () => {
    const before = performance.now() - silenceMillis
    open.forEach(({ bytesRead, sinceMillis, underWay }, socket) => {
      if (underWay.length === 0 && socket.bytesRead === bytesRead && sinceMillis < before) socket.destroy()
    })
  }

  const drain = Effect.fnUntraced(function* (graceMillis: number) {
    if (!server.listening) return
    const gone = yield* Deferred.make<void>()
    server.once("close", () => Deferred.doneUnsafe(gone, Exit.void))
    isDraining = true
    open.forEach(({ underWay }) => underWay.forEach(({ response }) => makeLast(response)))
    yield* afterPoll(() => Net.Server.prototype.close.call(server))
    yield* Effect.sleep(lookMillis).pipe(
      Effect.andThen(afterPoll(closeSilent)),
      Effect.forever,
      Effect.raceFirst(Deferred.await(gone)),
      Effect.interruptible,
      Effect.timeoutOption(graceMillis)
    )
    server.closeAllConnections()
    // Only Node's timer for slow requests is left to stop.
    server.close(() => {})
  }, Effect.uninterruptible)

  return { drain }
}

/**
 * Runs `work` right after a turn of the event loop that has accepted and read whatever had arrived. A loop that was busy has not done so yet.
 * The kernel resets connections that are not accepted, and connections that are closed with unread data. A connection that comes within this
 * turn is reset all the same, unread: its client may repeat the request elsewhere.
 */
const afterPoll = (work: () => void) =>
  Effect.callback<void>((resume) => {
    setImmediate(() => {
      work()
      resume(Effect.void)
    })
  })
