/** A connection to Postgres with BEGIN deferred, and the packets that the driver's messages leave in. */
import { PgConnection } from "@effect/sql-pg"
import { Effect, type Redacted } from "effect"
import * as DeferredBegin from "../../src/postgres/fast/DeferredBegin.ts"
import * as Sockets from "../../src/postgres/tls/Sockets.ts"

/** Packets are seen before they are encrypted. */
export const packetsOf = Effect.fnUntraced(function* (url: Redacted.Redacted) {
  const written: Array<Buffer> = []
  const sockets = yield* Sockets.warning
  const connection = yield* PgConnection.make(
    sockets(url, (socket) => {
      const write = socket.write.bind(socket)
      socket.write = (chunk: Uint8Array, ...rest: ReadonlyArray<never>) => {
        written.push(Buffer.from(chunk))
        return write(chunk, ...rest)
      }
      DeferredBegin.install(socket)
    })
  )
  /** The packets that `effect` writes. */
  const packets = <A, E>(effect: Effect.Effect<A, E>) =>
    Effect.gen(function* () {
      const before = written.length
      yield* effect
      return written.slice(before).map((bytes) => bytes.toString("latin1"))
    })
  return { connection, packets }
})
