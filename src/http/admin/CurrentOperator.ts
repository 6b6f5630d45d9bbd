/** The operator of a request under /admin: the credential's name and, from the header X-Operator, the person's. */
import { Effect } from "effect"
import { HttpServerRequest } from "effect/http"
import type { Operator } from "../../platform/OperatorAudit.ts"
import { Caller } from "../access/Caller.ts"
import { badRequest, type Problem } from "../Problems.ts"

/** The header's name. It has letters of any alphabet, percent-encoded as UTF-8: a header can't carry them otherwise. */
export const operatorHeader = "x-operator"

/** As a key's name. */
const maxLength = 64
const printable = new RegExp(`^[^\\p{C}\\p{Zl}\\p{Zp}]{1,${maxLength}}$`, "u")

const nameIn = (value: string): string | undefined => {
  // Bytes above ASCII have no agreed meaning in a header.
  if (!/^[\x20-\x7e]*$/.test(value)) return undefined
  try {
    const name = decodeURIComponent(value).trim()
    return printable.test(name) ? name : undefined
  } catch {
    return undefined
  }
}

/** The caller's name, and `/ada` where the header X-Operator says ada. Fails with 400 for a header that names nobody. */
export const currentActor: Effect.Effect<string, Problem, HttpServerRequest.HttpServerRequest> = Effect.gen(
  function* () {
    const { headers } = yield* HttpServerRequest.HttpServerRequest
    const { name: caller } = yield* Caller
    const value = headers[operatorHeader]
    if (value === undefined) return caller
    const name = nameIn(value)
    if (name !== undefined) return `${caller}/${name}`
    return yield* badRequest([
      {
        in: "header",
        pointer: `/${operatorHeader}`,
        message: `must be 1 to ${maxLength} printable characters, percent-encoded where they are not ASCII`
      }
    ])
  }
)

/** The operator of the request, with the reason that its body gives: what the audit records of a decision. */
export const currentOperator = (
  reason: string
): Effect.Effect<Operator, Problem, HttpServerRequest.HttpServerRequest> =>
  Effect.map(currentActor, (actor) => ({ actor, reason }))
