/**
 * Bounds the requests in work, so that memory stays bounded and health keeps answering.
 *
 * A request is in work from its arrival until its handler has ended and its answer is written to the last byte, or its connection has closed.
 * Above the limit a request is refused at once, with 503 and without a look at its body. Readiness and metrics each have places of their own,
 * and liveness needs none.
 *
 * With API keys a caller gets no more places than it leaves free: one caller alone holds half of them, and the next one half of the rest. So a
 * few callers together keep nobody out. A caller is a key's name, or the address of requests without a valid key. Its further requests get 429.
 * Without keys all is one caller, on this machine.
 *
 * A stream of events gives its place back as soon as it has begun.
 *
 * A client that is slow to send a body or to read an answer keeps its place only while nobody else needs it. After {@link patienceMillis} its
 * connection may be closed for another request, the slowest client's first. So slow clients, however many, don't keep others out.
 */
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Context, Effect, Exit, Metric, Semaphore } from "effect"
import { HttpServerRequest, type HttpServerResponse } from "effect/http"
import type * as Http from "node:http"
import * as Members from "../platform/Members.ts"
import * as Turn from "../platform/Turn.ts"
import { Caller } from "./access/Caller.ts"
import { AccessSettings } from "./access/Credentials.ts"
import { networkOf } from "./access/RateLimits.ts"
import * as Connections from "./Connections.ts"
import { Problem, toResponse } from "./Problems.ts"
import { singleHeaders } from "./SingleHeaders.ts"

/** See {@link make}. */
export const AdmissionSettings = Context.Reference<{
  /** Requests in work, beside those to health and metrics. */
  readonly maxRequests: number
  /** How long a client may take to read an answer: as long as it may take to send a request. */
  readonly answerTimeoutMillis: number
}>("paid-once/http/AdmissionSettings", { defaultValue: () => ({ maxRequests: 256, answerTimeoutMillis: 30_000 }) })

/** Places for readiness, and as many for metrics: enough for several who watch at once, none of whom asks more than once a second. */
export const reservedRequests = 16

/** Long enough for a client on a fair line, and as long as `Retry-After` tells others to wait. */
const patienceMillis = 1_000
const retryAfterSeconds = 1

/** Three times what is used by the busiest load balancers, and far below the usual limit on open files. An idle one takes some 20 KB. */
const maxConnections = 1_000

/**
 * Handlers that run side by side, half as many as the pool has connections: readiness and background work need some. The largest order takes
 * some thirty milliseconds of JavaScript, and nothing else runs meanwhile.
 */
const maxTurns = 8

/** How often unread answers are looked for, and metrics are updated. */
const lookMillis = 1_000

const inWorkGauge = Metric.gauge("http_requests_in_work", {
  description: "HTTP requests in work, until the last byte of the answer is written"
})
const refusedTotal = Metric.counter("http_requests_refused_total", {
  description:
    "HTTP requests refused because too many were in work: with 503, or with 429 where they were of one caller",
  incremental: true
})
const closedTotal = Metric.counter("http_connections_closed_total", {
  description:
    "Connections closed by a limit: on their number, on their unanswered requests, or on the patience with a slow client",
  incremental: true
})

/** A request in work. */
interface Work {
  readonly caller: string
  readonly response: Http.ServerResponse
  readonly arrivedMillis: number
  /** When its handler had the answer. */
  answeredMillis: number | undefined
}

/** Since when the request waits for its client; undefined while it waits for us. An answer without a socket waits behind another one. */
const waitsSince = ({ answeredMillis, arrivedMillis, response }: Work): number | undefined =>
  !response.req.complete ? arrivedMillis : response.socket === null ? undefined : answeredMillis

/** Places for requests in work. */
class Places {
  readonly inWork: Array<Work> = []
  readonly #size: number
  readonly #isShared: boolean
  readonly #onClosed: () => void

  /** `isShared`: a caller gets no more places than it leaves free. */
  constructor(size: number, isShared: boolean, onClosed: () => void) {
    this.#size = size
    this.#isShared = isShared
    this.#onClosed = onClosed
  }

  /** A place, or the problem of a request that gets none. */
  take(response: Http.ServerResponse, caller: string): Work | Problem {
    const now = performance.now()
    const free = this.#size - this.inWork.length
    // With more than half of the places free nobody can have more than that.
    if (this.#isShared && free > 0 && this.inWork.length >= free) {
      const own = this.inWork.filter((work) => work.caller === caller)
      if (own.length >= free && !this.#makeRoom(own, now)) return busyWithYours
    }
    if (this.inWork.length >= this.#size && !this.#makeRoom(this.inWork, now)) return busy
    const work: Work = { caller, response, arrivedMillis: now, answeredMillis: undefined }
    this.inWork.push(work)
    return work
  }

  #makeRoom(among: Iterable<Work>, now: number): boolean {
    let slowest: Work | undefined
    let sinceMillis = now - patienceMillis
    for (const work of among) {
      const since = waitsSince(work) ?? now
      if (since > sinceMillis) continue
      slowest = work
      sinceMillis = since
    }
    if (slowest === undefined) return false
    Members.remove(this.inWork, slowest)
    slowest.response.req.socket.destroy()
    this.#onClosed()
    return true
  }
}

const busy = new Problem({
  status: 503,
  detail: "too many requests are in work: try again",
  headers: { "retry-after": String(retryAfterSeconds) }
})

const busyWithYours = new Problem({
  status: 429,
  detail: "as many requests are in work for this caller as it leaves to others: try again when one has ended",
  headers: { "retry-after": String(retryAfterSeconds) }
})

/**
 * What those who watch the process ask for. Each path has places of its own: readiness may wait for the database, and a scrape does not. Other
 * paths below /health are answered 404, and have none.
 */
const watchedPaths = ["/health/ready", "/metrics"]

/** It asks nobody and waits for nothing. So whoever holds the places, an orchestrator hears that the process lives. */
const isLiveness = ({ url }: HttpServerRequest.HttpServerRequest): boolean => /^\/health\/live(\?|$)/.test(url)

/** A stream of events lasts as long as its client likes, and is no work meanwhile: its own bound is on the number of listeners. */
const isEndless = ({ headers }: HttpServerResponse.HttpServerResponse): boolean =>
  headers["content-type"] === "text/event-stream"

/** The bounds of a server. `name` is its label in metrics. */
export const make = Effect.fnUntraced(function* (server: Http.Server, name: "service" | "gateway") {
  const { answerTimeoutMillis, maxRequests } = yield* AdmissionSettings
  const context = yield* Effect.context()
  const closedBy = (reason: Connections.ClosedReason | "slow client") =>
    Metric.withAttributes(closedTotal, { server: name, reason })
  const closed = (reason: Connections.ClosedReason | "slow client") => closedBy(reason).updateUnsafe(1, context)
  const connections = Connections.watch(server, { connections: maxConnections, answerTimeoutMillis, onClosed: closed })
  const turns = Semaphore.makeUnsafe(maxTurns)
  const slow = () => closed("slow client")
  const { keys } = yield* AccessSettings
  // The sandbox's one caller is the service.
  const users = new Places(maxRequests, name === "service" && keys !== undefined, slow)
  const watchers = new Map(watchedPaths.map((path) => [path, new Places(reservedRequests, false, slow)]))
  const gauge = Metric.withAttributes(inWorkGauge, { server: name })
  const refusedBy = ({ status }: Problem) =>
    Metric.withAttributes(refusedTotal, { server: name, status: String(status) })
  // There at 0 from the start: an alert compares with the value before the first refusal.
  for (const reason of [...Connections.closedReasons, "slow client"] as const) yield* Metric.value(closedBy(reason))
  for (const problem of [busy, busyWithYours]) yield* Metric.value(refusedBy(problem))

  // Before the first look.
  yield* Metric.update(gauge, 0)
  // It can't fail: a look reads and closes, and a gauge takes any number.
  yield* Effect.suspend(() => {
    connections.closeUnread()
    return Metric.update(
      gauge,
      [users, ...watchers.values()].reduce((sum, { inWork }) => sum + inWork.length, 0)
    )
  }).pipe(Effect.delay(lookMillis), Effect.forever, Effect.forkScoped)

  /** Runs `app` for a request that has a place, and refuses others. */
  const around = <E, R>(
    app: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
  ): Effect.Effect<HttpServerResponse.HttpServerResponse, E, R | HttpServerRequest.HttpServerRequest> =>
    Effect.contextWith((context: Context.Context<R | HttpServerRequest.HttpServerRequest>) => {
      const request = Context.get(
        context as Context.Context<HttpServerRequest.HttpServerRequest>,
        HttpServerRequest.HttpServerRequest
      )
      // Both servers speak HTTP/1.1 alone.
      const response = NodeHttpServerRequest.toServerResponse(request) as Http.ServerResponse
      const problem = singleHeaders(response.req)
      const answer = problem === undefined ? app : Effect.succeed(toResponse(problem))
      if (isLiveness(request)) return answer
      const places = watchers.get(request.url.split("?", 1)[0]!) ?? users
      const { isProven, name } = Context.get(context, Caller)
      const caller = isProven ? `key ${name}` : `address ${networkOf(response.req.socket.remoteAddress ?? "")}`
      const work = places.take(response, caller)
      if (work instanceof Problem) {
        refusedBy(work).updateUnsafe(1, context)
        return Effect.succeed(toResponse(work))
      }
      // The client may have left while its request waited for its turn.
      const present = Effect.suspend(() => (response.req.socket.destroyed ? Effect.succeed(toResponse(busy)) : answer))
      return Effect.onExitPrimitive(places === users ? Turn.take(turns, present) : answer, (exit) => {
        work.answeredMillis = performance.now()
        const done = () => Members.remove(places.inWork, work)
        if (Exit.isSuccess(exit) && isEndless(exit.value)) done()
        else connections.onceAnswered(response, done)
        return undefined
      })
    })

  return { around, connections }
})
