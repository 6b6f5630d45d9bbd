/** The handlers of {@link LiveApi}. */
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Effect } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import type * as Http from "node:http"
import { LaneReport } from "../../operations/reports/LaneReport.ts"
import { Credentials } from "../access/Credentials.ts"
import { Api } from "../Api.ts"
import { toResponse } from "../Problems.ts"
import { LiveStream } from "./LiveStream.ts"
import { Overviews } from "./Overviews.ts"

/** A browser sends it when it reconnects. Anything else than one of our ids is none. */
const lastEventId = (headers: HttpServerRequest.HttpServerRequest["headers"]): number | undefined => {
  const id = headers["last-event-id"]
  return id !== undefined && /^\d{1,15}$/.test(id) ? Number(id) : undefined
}

const streamHeaders = {
  // A stream is for one page, at one time.
  "cache-control": "no-store",
  // nginx would collect events until its buffer is full.
  "x-accel-buffering": "no",
  // Nothing follows a stream on its connection: a stop does not wait for a client that might send more.
  connection: "close"
}

export const layer = HttpApiBuilder.group(
  Api,
  "live",
  Effect.fn(function* (handlers) {
    const credentials = yield* Credentials
    const lanes = yield* LaneReport
    const live = yield* LiveStream
    const overviews = yield* Overviews
    return handlers
      .handle("overview", () =>
        Effect.gen(function* () {
          const { overview } = yield* overviews.read
          return { ...overview, rates: yield* live.lastSample }
        })
      )
      .handle("lanes", () => Effect.map(lanes.lanes, (items) => ({ items })))
      .handleRaw("stream", ({ query }) =>
        Effect.gen(function* () {
          const request = yield* HttpServerRequest.HttpServerRequest
          const { req } = NodeHttpServerRequest.toServerResponse(request) as Http.ServerResponse
          const connection = { cut: () => void req.socket.destroy(), ended: credentials.ended(req) }
          const events = yield* live.listen(connection, lastEventId(request.headers) ?? query.after)
          return HttpServerResponse.stream(events, { contentType: "text/event-stream", headers: streamHeaders })
        }).pipe(Effect.catchTag("Problem", (problem) => Effect.succeed(toResponse(problem))))
      )
  })
)
