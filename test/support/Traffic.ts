/**
 * Clients that place and pay orders one after the other, each on one kept connection, as a busy service would. They record everything but
 * good answers and refused connections.
 */
import { Effect, Fiber, Schedule, type Scope } from "effect"
import * as Http from "node:http"

interface Outcome {
  readonly _tag: "Answer" | "Refused" | "Reset" | "Broken"
  readonly status: number
  readonly body: string
}

/**
 * One exchange. `Refused`: the connection was refused. `Reset`: a new connection was, and whether a server has read from it is not told.
 * Any other failure is `Broken`.
 */
const exchange = (agent: Http.Agent, url: string, path: string, body: unknown, key: string) =>
  Effect.callback<Outcome>((resume) => {
    const text = JSON.stringify(body)
    const done = (_tag: Outcome["_tag"], status: number, body: string) => resume(Effect.succeed({ _tag, status, body }))
    let isConnected = false
    const request = Http.request(
      `${url}${path}`,
      {
        agent,
        method: "POST",
        headers: {
          "content-type": "application/json",
          "content-length": Buffer.byteLength(text),
          "idempotency-key": key
        }
      },
      (response) => {
        let answer = ""
        response.setEncoding("utf8")
        response.on("data", (chunk: string) => (answer += chunk))
        response.on("end", () => done("Answer", response.statusCode ?? 0, answer))
        response.on("error", (error) => done("Broken", 0, `in the answer: ${error.message}`))
      }
    )
    request.on("socket", (socket) => {
      if (socket.connecting) socket.once("connect", () => (isConnected = true))
      else isConnected = true
    })
    request.on("error", (error: NodeJS.ErrnoException) =>
      done(
        !isConnected ? "Refused" : error.code === "ECONNRESET" && !request.reusedSocket ? "Reset" : "Broken",
        0,
        `${error.message}${request.reusedSocket ? " on a kept connection" : ""}`
      )
    )
    request.end(text)
  })

export interface Traffic {
  /** Orders whose payment was answered with 200. */
  readonly paid: () => ReadonlyArray<string>
  /** Orders whose placing was answered with 201. */
  readonly placed: () => ReadonlyArray<string>
  /** Connections that were refused. */
  readonly refused: () => number
  /** All other outcomes, in sentences. */
  readonly surprises: () => ReadonlyArray<string>
  /** Lets every client finish its current order, and waits for that. */
  readonly end: Effect.Effect<void>
}

/**
 * Starts `clients` clients, which run until {@link Traffic.end}. `urls` returns the servers at the moment. A refused client tries the next
 * server, with the same key. If all refuse, it gives up or tries again, as the options say.
 */
export const start = Effect.fnUntraced(function* (options: {
  readonly urls: () => ReadonlyArray<string>
  readonly clients: number
  readonly givesUp: boolean
  /**
   * Whether a server has taken the request with this key. The kernel completes connections on its own: one that comes between a server's last
   * accept and its close is reset. To its client that is a refusal, as long as nobody has read the request.
   */
  readonly taken: (key: string) => Effect.Effect<boolean>
}): Effect.fn.Return<Traffic, never, Scope.Scope> {
  const paid: Array<string> = []
  const placed: Array<string> = []
  const surprises: Array<string> = []
  let refused = 0
  const state = { ending: false }

  const client = (number: number) =>
    Effect.gen(function* () {
      const agent = yield* Effect.acquireRelease(
        Effect.sync(() => new Http.Agent({ keepAlive: true, maxSockets: 1 })),
        (agent) => Effect.sync(() => agent.destroy())
      )
      let turn = number
      /** Repeats the request until there is an answer; undefined if it gave up. */
      const insist = (path: string, body: unknown, key: string) =>
        Effect.gen(function* () {
          const urls = options.urls()
          const url = urls[turn % urls.length]!
          const told = yield* exchange(agent, url, path, body, key)
          const outcome: Outcome =
            told._tag === "Reset" ? { ...told, _tag: (yield* options.taken(key)) ? "Broken" : "Refused" } : told
          if (outcome._tag === "Refused") {
            refused += 1
            turn += 1
            yield* Effect.sleep(5)
          }
          return outcome
        }).pipe(
          Effect.repeat({
            until: ({ _tag }) => _tag !== "Refused" || options.givesUp,
            schedule: Schedule.forever
          })
        )

      for (let order = 0; !state.ending; order++) {
        const key = `${number}-${order}`
        const place = yield* insist(
          "/orders",
          {
            customerId: `customer-${number}`,
            currency: "EUR",
            lines: [{ sku: "book", quantity: 1, unitAmountMinor: 100 + number }]
          },
          `place-${key}`
        )
        if (place._tag === "Refused") return
        if (place.status !== 201) {
          surprises.push(`POST /orders: ${place.status} ${place.body}`)
          continue
        }
        const { id } = JSON.parse(place.body) as { readonly id: string }
        placed.push(id)
        const pay = yield* insist(`/orders/${id}/pay`, { paymentMethod: "pm_ok" }, `pay-${key}`)
        if (pay._tag === "Refused") return
        if (pay.status === 200) paid.push(id)
        else surprises.push(`POST /orders/${id}/pay: ${pay.status} ${pay.body}`)
      }
    }).pipe(Effect.scoped)

  const fibers = yield* Effect.forEach(
    Array.from({ length: options.clients }, (_, number) => number),
    (number) => Effect.forkScoped(client(number))
  )
  return {
    paid: () => paid,
    placed: () => placed,
    refused: () => refused,
    surprises: () => surprises,
    end: Effect.suspend(() => {
      state.ending = true
      return Effect.asVoid(Fiber.awaitAll(fibers))
    })
  }
})
