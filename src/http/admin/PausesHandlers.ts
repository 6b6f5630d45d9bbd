/** The handlers of `PausesApi.ts`. */
import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { PauseDecisions } from "../../operations/pauses/PauseDecisions.ts"
import { Api } from "../Api.ts"
import { decide } from "./AdminAnswers.ts"
import { ReasonBody } from "./AdminParts.ts"
import { type Kind, KnownNames } from "./KnownNames.ts"

export const layer = HttpApiBuilder.group(
  Api,
  "adminPauses",
  Effect.fn(function* (handlers) {
    const known = yield* KnownNames
    const pauses = yield* PauseDecisions
    const decideOn = (action: "pause" | "resume", kind: Kind, name: string) =>
      decide(ReasonBody, (operator) =>
        Effect.andThen(known.inPath(kind, name), pauses[action]({ kind, name }, operator))
      )
    return handlers
      .handle("list", () => Effect.map(pauses.all, (items) => ({ items })))
      .handleRaw("pauseTopic", ({ params }) => decideOn("pause", "topic", params.name))
      .handleRaw("resumeTopic", ({ params }) => decideOn("resume", "topic", params.name))
      .handleRaw("pauseConsumer", ({ params }) => decideOn("pause", "consumer", params.name))
      .handleRaw("resumeConsumer", ({ params }) => decideOn("resume", "consumer", params.name))
      .handleRaw("pauseTaskType", ({ params }) => decideOn("pause", "task type", params.name))
      .handleRaw("resumeTaskType", ({ params }) => decideOn("resume", "task type", params.name))
  })
)
