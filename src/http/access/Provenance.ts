/** The first check of every request, at the service and at the sandbox: its host, and whose page it comes from. */
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Effect } from "effect"
import { HttpServerRequest } from "effect/http"
import type * as Http from "node:http"
import * as AllowedHosts from "./AllowedHosts.ts"
import * as CrossSite from "./CrossSite.ts"
import type { Problem } from "../Problems.ts"

/** Node's message of the request that is being answered. The server speaks HTTP/1 alone. */
export const message: Effect.Effect<Http.IncomingMessage, never, HttpServerRequest.HttpServerRequest> = Effect.map(
  HttpServerRequest.HttpServerRequest,
  (request) => NodeHttpServerRequest.toIncomingMessage(request) as Http.IncomingMessage
)

/** A check of requests, by the settings of {@link AllowedHosts.HostSettings}: it fails with the problem of one that is not admitted. */
export const make: Effect.Effect<Effect.Effect<void, Problem, HttpServerRequest.HttpServerRequest>> = Effect.map(
  AllowedHosts.HostSettings,
  (settings) => {
    const hosts = AllowedHosts.make(settings)
    return Effect.flatMap(message, (request) => {
      const problem = hosts.refusal(request) ?? CrossSite.refusal(request, hosts)
      return problem === undefined ? Effect.void : Effect.fail(problem)
    })
  }
)
