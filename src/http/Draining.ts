/**
 * How a server stops without its clients seeing anything worse than a refused connection.
 *
 * Node's own `close` ends every connection that is idle at that moment, and a client that is just sending its next request on one gets a
 * reset: it can't know whether its payment was taken. So new connections are refused first, and whoever has one is told by his next answer
 * (`Connection: close`, Observe.ts) to go elsewhere; what nobody uses for a while is closed then.
 */
import { Deferred, Effect, Exit } from "effect"
import type * as Http from "node:http"
import * as Net from "node:net"

/** A client that is busy sends its next request within this time; one that does not is not likely to do so in the moment of the close. */
const lingerMillis = 500

/** How often what has become idle since is closed. */
const idleLookMillis = 50

/**
 * Stops accepting, waits until all connections are gone, at most `graceMillis`, and cuts what is left. For a finalizer: it can't be
 * interrupted, and has an end by itself.
 */
export const drain = Effect.fnUntraced(function* (server: Http.Server, graceMillis: number) {
  if (!server.listening) return
  const gone = yield* Deferred.make<void>()
  server.once("close", () => Deferred.doneUnsafe(gone, Exit.void))
  yield* stopAccepting(server)
  const closeIdle = Effect.sync(() => server.closeIdleConnections()).pipe(
    Effect.andThen(Effect.sleep(idleLookMillis)),
    Effect.forever
  )
  yield* Effect.sleep(lingerMillis).pipe(
    Effect.andThen(closeIdle),
    Effect.raceFirst(Deferred.await(gone)),
    Effect.interruptible,
    Effect.timeoutOption(graceMillis)
  )
  server.closeAllConnections()
  // Nothing is left to close but its look-out for slow requests.
  server.close(() => {})
}, Effect.uninterruptible)

/**
 * Closes the listening socket alone. Right after a turn of the event loop has taken what had connected: the kernel resets what nobody
 * has accepted yet.
 */
const stopAccepting = (server: Http.Server) =>
  Effect.callback<void>((resume) => {
    setImmediate(() => {
      Net.Server.prototype.close.call(server)
      resume(Effect.void)
    })
  })
