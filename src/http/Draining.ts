/**
 * How a server stops without its clients seeing anything worse than a refused connection.
 *
 * Node's own `close` ends every connection that is idle at that moment, and a client that is just sending its next request on one gets a
 * reset: it can't know whether its payment was taken. Nothing that a server does to a kept connection is safe from that but to answer on it and
 * say that this was the last answer. So new connections are refused first; each connection that is used ends with its next answer
 * (`Connection: close`); and one that nobody has used for so long that its client is hardly about to use it now is closed.
 */
import { Deferred, Effect, Exit } from "effect"
import type * as Http from "node:http"
import * as Net from "node:net"

/**
 * A connection that was silent for so long is closed. A client under load comes back within some hundred milliseconds, on a machine without a
 * free core within a second or so; whoever pauses longer is unlikely to come in the very moment of the close. Clients that leave connections
 * behind make a stop take as long.
 */
const silenceMillis = 2_000

/** How often it is looked for what has been silent for so long. */
const lookMillis = 50

/** What is known of an open connection. */
interface Use {
  /** What is being answered. */
  readonly underWay: Set<Http.ServerResponse>
  /** When it was opened, or its last answer ended. */
  sinceMillis: number
  /** What had come by then: if it is more by now, a request has begun. */
  bytesRead: number
}

/** How a server that is about to listen will part from its clients. */
export interface Draining {
  /**
   * Stops accepting, waits until all connections are gone, at most `graceMillis`, and cuts what is left. For a finalizer: it can't be
   * interrupted, and has an end by itself.
   */
  readonly drain: (graceMillis: number) => Effect.Effect<void>
}

/** Watches the server's connections from now on. */
export const make = (server: Http.Server): Draining => {
  const uses = new Map<Net.Socket, Use>()
  let isDraining = false

  /** The answer says that the connection ends with it, and Node ends it then. Too late where its head has been sent. */
  const makeLast = (response: Http.ServerResponse) => {
    response.shouldKeepAlive = false
  }
  server.on("connection", (socket: Net.Socket) => {
    uses.set(socket, { underWay: new Set(), sinceMillis: performance.now(), bytesRead: 0 })
    socket.once("close", () => uses.delete(socket))
  })
  server.on("request", ({ socket }, response) => {
    if (isDraining) makeLast(response)
    const use = uses.get(socket)
    use?.underWay.add(response)
    response.once("close", () => {
      if (use === undefined) return
      use.underWay.delete(response)
      use.sinceMillis = performance.now()
      use.bytesRead = socket.bytesRead
    })
  })

  const closeSilent = () => {
    const before = performance.now() - silenceMillis
    uses.forEach(({ bytesRead, sinceMillis, underWay }, socket) => {
      if (underWay.size === 0 && socket.bytesRead === bytesRead && sinceMillis < before) socket.destroy()
    })
  }

  const drain = Effect.fnUntraced(function* (graceMillis: number) {
    if (!server.listening) return
    const gone = yield* Deferred.make<void>()
    server.once("close", () => Deferred.doneUnsafe(gone, Exit.void))
    isDraining = true
    uses.forEach(({ underWay }) => underWay.forEach(makeLast))
    yield* afterPoll(() => Net.Server.prototype.close.call(server))
    yield* Effect.sleep(lookMillis).pipe(
      Effect.andThen(afterPoll(closeSilent)),
      Effect.forever,
      Effect.raceFirst(Deferred.await(gone)),
      Effect.interruptible,
      Effect.timeoutOption(graceMillis)
    )
    server.closeAllConnections()
    // Nothing is left to close but its look-out for slow requests.
    server.close(() => {})
  }, Effect.uninterruptible)

  return { drain }
}

/**
 * Runs `work` right after a turn of the event loop that took in whatever had come: the kernel resets a connection that nobody has accepted yet,
 * and one that is closed with a request unread. A loop that was busy until now has all of them still before it.
 */
const afterPoll = (work: () => void) =>
  Effect.callback<void>((resume) => {
    setImmediate(() => {
      work()
      resume(Effect.void)
    })
  })
