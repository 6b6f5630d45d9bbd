/**
 * A small pooler in transaction mode, like PgBouncer. A client has a server session from its first message until the server says that no
 * transaction is open. Then another client may get the session. The session that was returned last is lent first.
 */
import { Effect, type Scope } from "effect"
import * as net from "node:net"

const sslRequest = 80_877_103

/** Splits a stream of `type, length, body` messages. Lengths count themselves and not the type. */
const messages = (onMessage: (message: Buffer) => void) => {
  let rest: Buffer = Buffer.alloc(0)
  return (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk])
    while (rest.length >= 5 && rest.length >= 1 + rest.readInt32BE(1)) {
      const end = 1 + rest.readInt32BE(1)
      const message = rest.subarray(0, end)
      rest = rest.subarray(end)
      onMessage(message)
    }
  }
}

class Session {
  client: net.Socket | undefined
  /** Answers that are still expected: one for each Sync or simple query. */
  owed = 0
  readonly socket: net.Socket
  constructor(socket: net.Socket) {
    this.socket = socket
  }
}

/** Listens on a free port until the scope closes. */
export const make = (upstream: {
  readonly host: string
  readonly port: number
}): Effect.Effect<{ readonly host: string; readonly port: number }, never, Scope.Scope> =>
  Effect.gen(function* () {
    const sockets = new Set<net.Socket>()
    const idle: Array<Session> = []
    const waiting: Array<(session: Session) => void> = []
    const keep = (socket: net.Socket) => {
      sockets.add(socket)
      socket.on("error", () => {})
      socket.on("close", () => sockets.delete(socket))
      return socket
    }
    const give = (session: Session) => {
      session.client = undefined
      const next = waiting.shift()
      if (next === undefined) idle.push(session)
      else next(session)
    }

    const serve = (client: net.Socket) => {
      let current: Session | undefined
      const queue: Array<Buffer> = []
      const flush = () => {
        if (queue.length === 0) return
        if (current === undefined) {
          const take = (session: Session) => {
            session.client = client
            current = session
            flush()
          }
          const session = idle.pop()
          if (session === undefined) waiting.push(take)
          else take(session)
          return
        }
        for (const message of queue.splice(0)) {
          if (message[0] === 0x53 || message[0] === 0x51) current.owed++
          current.socket.write(message)
        }
      }
      const onMessage = messages((message) => {
        // Terminate ends the client's connection and not the session.
        if (message[0] === 0x58) return void client.end()
        queue.push(message)
        flush()
      })
      const open = (startup: Buffer) => {
        const session = new Session(keep(net.connect(upstream)))
        session.client = client
        // The login ends with one more ReadyForQuery than there were requests.
        session.owed = 1
        current = session
        session.socket.write(startup)
        session.socket.on(
          "data",
          messages((message) => {
            session.client?.write(message)
            const isReady = message[0] === 0x5a
            if (isReady) session.owed--
            if (isReady && message[5] === 0x49 && session.owed === 0) {
              released.get(session.client!)?.()
              give(session)
            }
          })
        )
      }
      released.set(client, () => {
        current = undefined
      })
      let started = false
      client.on("data", (chunk: Buffer) => {
        if (started) return onMessage(chunk)
        if (chunk.readInt32BE(4) === sslRequest) return void client.write("N")
        started = true
        open(chunk)
      })
    }
    const released = new Map<net.Socket, () => void>()

    const server = net.createServer((socket) => serve(keep(socket)))
    yield* Effect.acquireRelease(
      Effect.callback<void>((resume) => {
        server.listen(0, "127.0.0.1", () => resume(Effect.void))
      }),
      () =>
        Effect.sync(() => {
          server.close()
          for (const socket of sockets) socket.destroy()
        })
    )
    return { host: "127.0.0.1", port: (server.address() as net.AddressInfo).port }
  })
