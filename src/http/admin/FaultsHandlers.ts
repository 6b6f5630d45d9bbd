/** The handlers of `FaultsApi.ts`. */
import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ArmedFaults, FaultsOff } from "../../operations/faults/ArmedFaults.ts"
import type { FaultImpossible } from "../../platform/FaultInjection.ts"
import { Api } from "../Api.ts"
import { badRequest } from "../Problems.ts"
import { answering, decide } from "./AdminAnswers.ts"
import { ReasonBody } from "./AdminParts.ts"
import { ArmBody } from "./FaultsApi.ts"

const impossible = ({ message }: FaultImpossible) =>
  Effect.fail(badRequest([{ in: "body", pointer: "/action", message: `is not possible: ${message}` }]))

export const layer = HttpApiBuilder.group(
  Api,
  "adminFaults",
  Effect.fn(function* (handlers) {
    const { clear, known, list, set } = yield* ArmedFaults
    const listening = Effect.filterOrFail(
      list,
      ({ processes }) => processes.length > 0,
      () => new FaultsOff()
    )
    return handlers
      .handle("list", () => answering(Effect.map(listening, (listed) => ({ points: known, ...listed }))))
      .handleRaw("set", ({ params }) =>
        decide(ArmBody, (operator, { action, delayMillis = 0, times }) =>
          Effect.catchTag(set(params.point, { action, delayMillis, times }, operator), "FaultImpossible", impossible)
        )
      )
      .handleRaw("clear", ({ params }) =>
        decide(ReasonBody, (operator) =>
          Effect.andThen(listening, Effect.catchTag(clear(params.point, operator), "FaultImpossible", impossible))
        )
      )
  })
)
