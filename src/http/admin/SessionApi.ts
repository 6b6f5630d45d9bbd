/** The group `session` of the API: the console's sign-in. */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { problems } from "../ApiParts.ts"

/** Far above an API key's 54 characters, and ADMIN_TOKEN's 200. */
const maxTokenLength = 1_000

/** Anybody may send it: no more is read than the longest token takes in JSON, with each character as six (\u0061). */
export const maxSignInBytes = 8_192

/** The body of `POST /admin/session`. */
export const SignInBody = Schema.Struct({
  token: Schema.String.check(
    Schema.isMinLength(1, { message: "must not be empty" }),
    Schema.isMaxLength(maxTokenLength, { message: `must have at most ${maxTokenLength} characters` })
  ).annotate({ description: "The token of the start's link, ADMIN_TOKEN, or an API key of scope operator or viewer" })
}).annotate({ identifier: "SignIn", examples: [{ token: "the-token-of-the-link" }] })

/** Who has signed in. */
export const SessionView = Schema.Struct({
  actor: Schema.String.annotate({ description: "The name in the audit: the credential's, and what X-Operator adds" }),
  canWrite: Schema.Boolean.annotate({ description: "False for the scope viewer, which gets 403 for each change" })
}).annotate({ identifier: "Session", examples: [{ actor: "admin/ada", canWrite: true }] })

export const SessionApi = HttpApiGroup.make("session")
  .add(
    HttpApiEndpoint.post("begin", "/admin/session", {
      payload: SignInBody,
      success: HttpApiSchema.NoContent,
      error: problems(400, 401, 403, 413, 415, 429)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Sign in",
        description:
          "Exchanges a token for a cookie that scripts can't read. The token of the start's link is good once. After ten wrong tokens " +
          "within a minute an address has to wait."
      })
    ),
    HttpApiEndpoint.get("get", "/admin/session", { success: SessionView, error: problems(400, 401) }).annotateMerge(
      OpenApi.annotations({
        summary: "Get the session",
        description: "Who has signed in, and whether they may change something."
      })
    ),
    HttpApiEndpoint.delete("end", "/admin/session", {
      success: HttpApiSchema.NoContent,
      error: problems(401, 403, 413, 415)
    }).annotateMerge(OpenApi.annotations({ summary: "Sign out", description: "Ends the session of the cookie." }))
  )
  .annotateMerge(OpenApi.annotations({ title: "Session", description: "Signing in to the console." }))
