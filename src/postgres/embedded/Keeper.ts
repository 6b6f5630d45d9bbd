/**
 * Keeps a server alive: where it dies, one of the processes that use it starts it again, and the others find it. Its address stays the same,
 * so all pools come back by themselves.
 */
import { Effect } from "effect"
import * as Backoff from "../../platform/Backoff.ts"
import * as DirectoryLock from "../../platform/DirectoryLock.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import * as Supervised from "../../platform/Supervised.ts"
import type { Settings } from "./Data.ts"
import type { Host } from "./Account.ts"
import { startRenewed } from "./Renewal.ts"
import { inspect } from "./Server.ts"

const lookMillis = 500 // a look reads two small files; requests fail until the server is back

/**
 * Watches the server of `home` until the scope closes. Only where {@link startRenewed} has run before.
 *
 * Who starts it is decided by the directory's lock. A process that does not get the lock does not wait for it: its holder may be frozen
 * after it has started the server.
 */
export const keep = Effect.fn("EmbeddedPostgres.keep")(function* (
  home: string,
  host: Host,
  secret: string,
  settings: Settings
) {
  let downSince: number | undefined
  let looks = 0
  let isSaid = false
  const step = Effect.gen(function* () {
    const now = yield* Monotonic.millis
    const server = yield* inspect(host.base)
    if (server?.phase === "ready") {
      if (downSince !== undefined) {
        const after = Math.round(now - downSince)
        yield* Effect.logInfo(`the embedded Postgres is back after ${after} ms, process ${server.pid}`)
      }
      downSince = undefined
      looks = 0
      isSaid = false
      return yield* Effect.sleep(lookMillis)
    }
    if (downSince === undefined) {
      downSince = now
      yield* Effect.logWarning(`the embedded Postgres has ended: it is started again (its log: ${home}/postgres.log)`)
    }
    // All processes see it at about the same moment.
    yield* Effect.sleep(yield* Backoff.millisAfter(Backoff.embeddedServer, ++looks))
    const started = yield* DirectoryLock.withFreeLock(home, startRenewed(home, host, secret, settings))
    if (started !== undefined || isSaid || now - downSince < DirectoryLock.sayMillis) return
    isSaid = true
    yield* DirectoryLock.warn(home)
  })
  yield* Supervised.forkLoop("embedded-postgres", step, { restartCapMillis: Backoff.embeddedServerCapMillis })
})
