/**
 * The proofs of a caller's name: API keys, ADMIN_TOKEN, the sessions of the console, and the link of the start.
 *
 * Everything under /admin needs one of them, also where no keys are configured and everybody may use the other routes. Then a start on
 * loopback draws a token and prints a link with it. The token is good for one session, so the link is worth nothing in a history or a log.
 */
import { Context, Effect, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import { randomBytes } from "node:crypto"
import type * as Http from "node:http"
import { Problem } from "../Problems.ts"
import { HostSettings, isLoopback } from "./AllowedHosts.ts"
import * as ApiKeys from "./ApiKeys.ts"
import { anonymous, type Caller, proven, refused } from "./Caller.ts"
import * as Guesses from "./Guesses.ts"
import * as SessionCookie from "./SessionCookie.ts"
import * as Sessions from "./Sessions.ts"

/** The configured credentials. */
export const AccessSettings = Context.Reference<{
  /** Undefined where none are configured: everybody may do everything outside of /admin. */
  readonly keys: ReadonlyArray<ApiKeys.ApiKey> | undefined
  /** ADMIN_TOKEN. */
  readonly adminToken?: ApiKeys.ApiKey | undefined
}>("paid-once/http/AccessSettings", { defaultValue: () => ({ keys: undefined }) })

/** As hard to guess as AES-256. */
const linkBytes = 32

/** A restart of the database takes seconds. */
const retrySeconds = 2

const withoutOrigin = new Problem({
  status: 403,
  detail:
    "a session may change something with the header Origin alone, which browsers send: programs send Authorization: Bearer TOKEN"
})

const addressOf = ({ socket }: Http.IncomingMessage) => socket.remoteAddress ?? ""

const unauthorized = (detail: string) => new Problem({ status: 401, detail, headers: { "www-authenticate": "Bearer" } })

/** See the file. */
export class Credentials extends Context.Service<
  Credentials,
  {
    /** The token of the link; undefined where operators have another credential, or other machines reach the service. */
    readonly linkToken: string | undefined
    /** The caller that the request's `Authorization` proves, or its cookie where it has no such header and `mayHaveSession`. */
    readonly callerOf: (request: Http.IncomingMessage, mayHaveSession: boolean) => Effect.Effect<Caller>
    /** The id of a new session of the token's owner. Fails with 401 for a wrong token, with 429 for one after too many. */
    readonly signIn: (request: Http.IncomingMessage, token: string) => Effect.Effect<string, Problem>
    /** Waits for the end of the session that the request has. A request with `Authorization` has none, and no end. */
    readonly ended: (request: Http.IncomingMessage) => Effect.Effect<void>
    /** Ends the session of the request's cookie. */
    readonly signOut: (request: Http.IncomingMessage) => Effect.Effect<void>
    /** The 401 of a request that proves nothing, with what its sender can do; 429 after too many wrong tokens. */
    readonly refusal: (request: Http.IncomingMessage, area: "admin" | "other") => Effect.Effect<Problem>
  }
>()("paid-once/http/Credentials") {
  static readonly layer: Layer.Layer<Credentials, never, SqlClient.SqlClient> = Layer.effect(
    Credentials,
    Effect.gen(function* () {
      const { adminToken, keys } = yield* AccessSettings
      const { host } = yield* HostSettings
      const guesses = Guesses.make()
      const hasOperator = adminToken !== undefined || keys?.some(({ scope }) => scope === "operator") === true
      const linkToken = hasOperator || !isLoopback(host) ? undefined : randomBytes(linkBytes).toString("base64url")
      /** The link, until it is used. */
      let link = linkToken === undefined ? undefined : ApiKeys.ofAdmin(linkToken)
      const admins = adminToken === undefined ? [] : [adminToken]
      // The link's sessions end with this process, as its token does.
      const sessions = yield* Sessions.make([
        ...(keys ?? []).filter(({ scope }) => scope !== "customer"),
        ...admins,
        ...(link === undefined ? [] : [link])
      ])

      const adminDetail = () =>
        hasOperator
          ? "this needs ADMIN_TOKEN, or an API key of scope operator or viewer: Authorization: Bearer TOKEN, or sign in at /console"
          : link !== undefined
            ? "this needs a session: open the link that the service has printed at its start"
            : linkToken !== undefined
              ? "the link that the service has printed is good once, and was used: a restart prints another; with ADMIN_TOKEN set no link is needed"
              : "nobody may use this: set ADMIN_TOKEN, or add a key of scope operator to API_KEYS"

      // At most one line in the time after which an address may try again.
      const failed = (request: Http.IncomingMessage) =>
        Effect.flatMap(guesses.failed(addressOf(request)), (isLast) =>
          isLast
            ? Effect.logWarning("too many wrong tokens: the address is refused further ones for some seconds").pipe(
                Effect.annotateLogs("address", addressOf(request))
              )
            : Effect.void
        )

      const nobody = anonymous(keys === undefined ? "operator" : undefined)

      const ofSession = (request: Http.IncomingMessage) =>
        Effect.gen(function* () {
          const owner = yield* sessions.ownerOf(SessionCookie.idsOf(request))
          if (owner !== undefined) return proven(owner)
          const lacksOrigin = yield* sessions.isAlive(SessionCookie.idsWithoutOrigin(request))
          return lacksOrigin ? refused(withoutOrigin) : nobody
        }).pipe(
          Effect.catch(({ message }) => {
            const headers = { "retry-after": String(retrySeconds) }
            return Effect.succeed(refused(new Problem({ status: 503, detail: message, headers })))
          })
        )

      const callerOf = (request: Http.IncomingMessage, mayHaveSession: boolean): Effect.Effect<Caller> => {
        const { authorization, cookie } = request.headers
        if (authorization !== undefined) return ofAuthorization(request, authorization)
        // Without a cookie there is no session to ask for.
        return mayHaveSession && cookie !== undefined ? ofSession(request) : Effect.succeed(nobody)
      }

      const ofAuthorization = Effect.fnUntraced(function* (request: Http.IncomingMessage, authorization: string) {
        const key = ApiKeys.bearerOf(authorization)
        if (key === undefined) return nobody
        const owner = ApiKeys.ownerOf(keys ?? [], key)
        if (owner !== undefined) return proven(owner)
        if (adminToken === undefined || (yield* guesses.refusal(addressOf(request))) !== undefined) return nobody
        const admin = ApiKeys.ownerOf(admins, key)
        if (admin !== undefined) return proven(admin)
        yield* failed(request)
        return nobody
      })

      const signIn = Effect.fn("Credentials.signIn")(function* (request: Http.IncomingMessage, token: string) {
        // Nobody guesses these, so guessers keep nobody out who has one.
        let owner = ApiKeys.ownerOf([...(keys ?? []), ...(link === undefined ? [] : [link])], token)
        if (owner === undefined) {
          const tooMany = yield* guesses.refusal(addressOf(request))
          if (tooMany !== undefined) return yield* tooMany
          owner = ApiKeys.ownerOf(admins, token)
        }
        if (owner === undefined) {
          yield* failed(request)
          return yield* unauthorized(`the token is not valid: ${adminDetail()}`)
        }
        if (owner.scope === "customer") {
          return yield* new Problem({ status: 403, detail: `the API key ${owner.name} has the scope customer` })
        }
        const isLink = owner === link
        if (isLink) link = undefined
        const id = yield* sessions.begin(owner).pipe(
          // The database may have refused it: the link is good for a session, and there is none.
          Effect.onError(() => Effect.sync(() => (isLink ? (link = owner) : undefined)))
        )
        yield* Effect.logInfo("a session of the console begins").pipe(
          Effect.annotateLogs({ caller: owner.name, address: addressOf(request) })
        )
        return id
      })

      return Credentials.of({
        linkToken,
        callerOf,
        signIn,
        ended: (request) =>
          request.headers.authorization === undefined ? sessions.ended(SessionCookie.idsOf(request)) : Effect.never,
        signOut: (request) => sessions.end(SessionCookie.idsOf(request)),
        refusal: Effect.fnUntraced(function* (request, area) {
          const hasGuessed = adminToken !== undefined && request.headers.authorization !== undefined
          const tooMany = hasGuessed ? yield* guesses.refusal(addressOf(request)) : undefined
          return (
            tooMany ??
            unauthorized(area === "admin" ? adminDetail() : "this needs an API key: Authorization: Bearer KEY")
          )
        })
      })
    })
  )
}
