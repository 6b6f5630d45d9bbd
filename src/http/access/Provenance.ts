/** The first check of every request, at the service and at the sandbox: its host, and whose page it comes from. */
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Context, Effect } from "effect"
import { HttpServerRequest } from "effect/http"
import type * as Http from "node:http"
import * as AllowedHosts from "./AllowedHosts.ts"
import * as CrossSite from "./CrossSite.ts"
import type { Problem } from "../Problems.ts"

/** Node's message of a request. The server speaks HTTP/1 alone. */
export const messageOf = (request: HttpServerRequest.HttpServerRequest): Http.IncomingMessage =>
  NodeHttpServerRequest.toIncomingMessage(request) as Http.IncomingMessage

/** {@link messageOf}, of the request that is being answered. */
export const message: Effect.Effect<Http.IncomingMessage, never, HttpServerRequest.HttpServerRequest> =
  Effect.contextWith((context: Context.Context<HttpServerRequest.HttpServerRequest>) =>
    Effect.succeed(messageOf(Context.get(context, HttpServerRequest.HttpServerRequest)))
  )

/** A check of requests, by the settings of {@link AllowedHosts.HostSettings}: the problem of one that is not admitted, or undefined. */
export const make: Effect.Effect<(request: Http.IncomingMessage) => Problem | undefined> = Effect.map(
  AllowedHosts.HostSettings,
  (settings) => {
    const hosts = AllowedHosts.make(settings)
    return (request) => hosts.refusal(request) ?? CrossSite.refusal(request, hosts)
  }
)
