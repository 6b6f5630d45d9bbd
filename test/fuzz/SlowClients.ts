/** Clients that ask and never read, that send and never end, and that hang up. What they are answered does not matter: the others must be. */
import { Effect } from "effect"
import { connect, type Socket } from "node:net"

const order = JSON.stringify({
  customerId: "slow",
  currency: "EUR",
  lines: [{ sku: "s", quantity: 1, unitAmountMinor: 1 }]
})
const post = `POST /orders HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: ${order.length}\r\n\r\n`
/** Several requests on one connection: their answers queue up behind the reader who does not read. */
const unread = "GET /orders?limit=100 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".repeat(8)

const behaviours = {
  "never read": (socket: Socket) => {
    socket.pause()
    socket.write(unread)
  },
  "never end their request": (socket: Socket) => {
    socket.resume()
    socket.write(post + order.slice(0, 20))
  },
  "never end their headers": (socket: Socket) => {
    socket.resume()
    socket.write("GET /orders HTTP/1.1\r\nX-Slow: ")
  },
  "hang up at once": (socket: Socket) => {
    socket.end(post + order)
    socket.destroySoon()
  }
} as const

export type Slowness = keyof typeof behaviours
export const slownesses = Object.keys(behaviours) as ReadonlyArray<Slowness>

/** `count` clients of this kind, for that long. */
export const slowClients = (url: string, slowness: Slowness, count: number, millis: number) =>
  Effect.acquireUseRelease(
    Effect.sync(() =>
      Array.from({ length: count }, () => {
        const { hostname, port } = new URL(url)
        const socket = connect(Number(port), hostname)
        // The service may end them, or be killed meanwhile.
        socket.on("error", () => socket.destroy())
        socket.on("connect", () => behaviours[slowness](socket))
        return socket
      })
    ),
    () => Effect.sleep(millis),
    (sockets) => Effect.sync(() => sockets.forEach((socket) => socket.destroy()))
  )
