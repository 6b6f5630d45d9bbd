/** The operator of a request, as the audit names them. */
import { Effect } from "effect"
import type { Operator } from "../../platform/OperatorAudit.ts"
import { Caller } from "../access/Caller.ts"

/** The caller, with the reason that the request gives. */
export const currentOperator = (reason: string): Effect.Effect<Operator> =>
  Effect.map(Caller, ({ name }) => ({ actor: name, reason }))
