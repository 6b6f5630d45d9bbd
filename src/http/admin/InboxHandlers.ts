/** The handlers of `InboxApi.ts`. */
import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { InboxDeadLetters } from "../../operations/InboxDeadLetters.ts"
import { InboxReport } from "../../operations/reports/InboxReport.ts"
import { Api } from "../Api.ts"
import { answering, decide, decideAll } from "./AdminAnswers.ts"
import { eventFilterOf, ReasonBody } from "./AdminParts.ts"
import { InboxRetryBody } from "./InboxApi.ts"
import { KnownNames } from "./KnownNames.ts"

export const layer = HttpApiBuilder.group(
  Api,
  "adminInbox",
  Effect.fn(function* (handlers) {
    const known = yield* KnownNames
    const report = yield* InboxReport
    const letters = yield* InboxDeadLetters
    const decideOn = (
      action: "retry" | "discard" | "skip",
      params: { readonly consumer: string; readonly eventId: string }
    ) =>
      decide(ReasonBody, (operator) =>
        Effect.andThen(
          known.inPath("consumer", params.consumer),
          letters[action](params.consumer, params.eventId, operator)
        )
      )
    const all = <A extends object>(act: (...of: Parameters<typeof letters.retryAll>) => Effect.Effect<A>) =>
      decideAll(InboxRetryBody, {
        check: ({ consumer }) => known.inFilter("consumer", { in: "body", pointer: "/filter/consumer" }, consumer),
        preview: (filter) => letters.preview(eventFilterOf(filter)),
        act: (filter, operator) => act(eventFilterOf(filter), operator)
      })
    return handlers
      .handle("list", ({ query }) =>
        answering(
          Effect.andThen(
            known.inFilter("consumer", { in: "query", pointer: "/consumer" }, query.consumer),
            report.list(
              query.status === undefined ? ["dead", "gap", "retrying"] : [query.status],
              eventFilterOf(query),
              query
            )
          )
        )
      )
      .handle("status", () => Effect.map(report.status(known.names.consumer), (items) => ({ items })))
      .handle("show", ({ params: { consumer, eventId } }) =>
        answering(Effect.andThen(known.inPath("consumer", consumer), report.show(consumer, eventId)))
      )
      .handle("causes", ({ query }) =>
        answering(
          Effect.andThen(
            known.inFilter("consumer", { in: "query", pointer: "/consumer" }, query.consumer),
            Effect.map(report.causes(eventFilterOf(query), query.limit), (items) => ({ items }))
          )
        )
      )
      .handleRaw("retryAll", () => all(letters.retryAll))
      .handleRaw("discardAll", () => all(letters.discardAll))
      .handleRaw("retry", ({ params }) => decideOn("retry", params))
      .handleRaw("discard", ({ params }) => decideOn("discard", params))
      .handleRaw("skip", ({ params }) => decideOn("skip", params))
  })
)
