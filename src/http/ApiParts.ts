/** Shared parts of the API's groups: ids, problems, and examples for the documentation. */
import { Schema } from "effect"
import { HttpApiSchema } from "effect/http-api"
import { contentType as problemType } from "./Problems.ts"

export const exampleOrderId = "01890a5d-ac96-774b-bcce-b302099a8057"

/**
 * An id of a path or query: a UUID version 7. Read in lower case, as the database writes it: RFC 9562 lets a client send capitals,
 * and the same order must not have two names where a name is compared as text (idempotency keys, timelines).
 */
export const uuidV7 = (description: string) =>
  Schema.String.check(Schema.isUUID(7, { message: "must be a UUID of version 7", description }))

const problemFields = {
  type: Schema.String,
  title: Schema.String,
  status: Schema.Int,
  detail: Schema.String,
  traceId: Schema.optionalKey(
    Schema.String.annotate({ description: "Of a failure on our side: the log has the rest under this id" })
  ),
  errors: Schema.optionalKey(
    Schema.Array(
      Schema.Struct({
        in: Schema.Literals(["body", "path", "query", "header"]),
        pointer: Schema.String.annotate({ description: "JSON Pointer (RFC 6901) to the field" }),
        message: Schema.String
      })
    )
  )
}

const ProblemBody = Schema.Struct(problemFields).annotate({
  identifier: "Problem",
  description: "RFC 9457. `errors` names every wrong field.",
  examples: [
    {
      type: "about:blank",
      title: "Bad Request",
      status: 400,
      detail: "the request is not valid: body /lines/0/quantity must be a whole number between 1 and 1000000",
      errors: [{ in: "body", pointer: "/lines/0/quantity", message: "must be a whole number between 1 and 1000000" }]
    }
  ]
})

const problem = (status: number) =>
  ProblemBody.pipe(HttpApiSchema.asJson({ contentType: problemType }), HttpApiSchema.status(status))
/** The problem of a payment that was declined, with the gateway's reason. */
export const declined = Schema.Struct({
  ...problemFields,
  paymentId: Schema.String.annotate({ description: "The payment that was declined" }),
  reason: Schema.String.annotate({ description: "The gateway's reason" })
})
  .annotate({ identifier: "PaymentDeclined", description: "RFC 9457, with the payment and the gateway's reason." })
  .pipe(HttpApiSchema.asJson({ contentType: problemType }), HttpApiSchema.status(402))

/** The problems of these statuses. */
export const problems = (...statuses: ReadonlyArray<number>) => statuses.map(problem)

/** An answer whose header names the path of what was made. */
export const withLocation = <S extends Schema.Top>(schema: S, of: string) =>
  HttpApiSchema.WithHeaders(schema, { location: Schema.String.annotate({ description: `The path of the ${of}` }) })
