/** The handlers of {@link SessionApi}. */
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { Caller } from "../access/Caller.ts"
import { Credentials } from "../access/Credentials.ts"
import * as Provenance from "../access/Provenance.ts"
import * as SessionCookie from "../access/SessionCookie.ts"
import { Api } from "../Api.ts"
import * as Body from "../Body.ts"
import { type Problem, toResponse } from "../Problems.ts"
import { currentActor } from "./CurrentOperator.ts"
import { maxSignInBytes, SignInBody } from "./SessionApi.ts"

const noContent = HttpServerResponse.empty({ status: 204 })

const refusing = <A, R>(effect: Effect.Effect<A, Problem, R>) =>
  Effect.catch(effect, (problem) => Effect.succeed(toResponse(problem)))

export const layer = HttpApiBuilder.group(
  Api,
  "session",
  Effect.fn(function* (handlers) {
    const credentials = yield* Credentials
    return handlers
      .handleRaw("begin", () =>
        refusing(
          Effect.gen(function* () {
            const { token } = yield* Body.decode(SignInBody, maxSignInBytes)
            const request = yield* Provenance.message
            // A browser that signs in again leaves no session behind.
            const id = yield* Effect.tap(credentials.signIn(request, token), credentials.signOut(request))
            return SessionCookie.set(noContent, request, id)
          })
        )
      )
      .handle("get", () =>
        refusing(
          Effect.gen(function* () {
            const { canWrite } = yield* Caller
            return { actor: yield* currentActor, canWrite }
          })
        )
      )
      .handleRaw("end", () =>
        refusing(
          Effect.gen(function* () {
            yield* Body.none
            const request = yield* Provenance.message
            yield* credentials.signOut(request)
            return SessionCookie.clear(noContent, request)
          })
        )
      )
  })
)
