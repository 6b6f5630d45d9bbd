/** The handlers of the groups in `OutboxApi.ts`. */
import { Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { OutboxDeadLetters } from "../../operations/OutboxDeadLetters.ts"
import { OutboxReport } from "../../operations/reports/OutboxReport.ts"
import { Api } from "../Api.ts"
import { answering, decide, decideAll } from "./AdminAnswers.ts"
import { eventFilterOf, ReasonBody } from "./AdminParts.ts"
import { KnownNames } from "./KnownNames.ts"
import { RetryBody } from "./OutboxApi.ts"

const outbox = HttpApiBuilder.group(
  Api,
  "adminOutbox",
  Effect.fn(function* (handlers) {
    const known = yield* KnownNames
    const report = yield* OutboxReport
    return handlers
      .handle("status", () => report.status)
      .handle("events", ({ query }) =>
        answering(
          Effect.andThen(
            known.inFilter("topic", { in: "query", pointer: "/topic" }, query.topic),
            report.list(query.status === undefined ? ["dead", "retrying"] : [query.status], eventFilterOf(query), query)
          )
        )
      )
      .handle("causes", ({ query }) =>
        answering(
          Effect.andThen(
            known.inFilter("topic", { in: "query", pointer: "/topic" }, query.topic),
            Effect.map(report.causes(eventFilterOf(query), query.limit), (items) => ({ items }))
          )
        )
      )
      .handle("event", ({ params }) => answering(report.show(params.id, known.names.consumer)))
  })
)

const deadLetters = HttpApiBuilder.group(
  Api,
  "adminDeadLetters",
  Effect.fn(function* (handlers) {
    const known = yield* KnownNames
    const report = yield* OutboxReport
    const letters = yield* OutboxDeadLetters
    const all = <A extends object>(act: (...of: Parameters<typeof letters.retryAll>) => Effect.Effect<A>) =>
      decideAll(RetryBody, {
        check: ({ topic }) => known.inFilter("topic", { in: "body", pointer: "/filter/topic" }, topic),
        preview: (filter) => letters.preview(eventFilterOf(filter)),
        act: (filter, operator) => act(eventFilterOf(filter), operator)
      })
    return handlers
      .handle("list", ({ query }) =>
        answering(
          Effect.andThen(
            known.inFilter("topic", { in: "query", pointer: "/topic" }, query.topic),
            report.list(["dead"], eventFilterOf(query), query)
          )
        )
      )
      .handleRaw("retryAll", () => all(letters.retryAll))
      .handleRaw("discardAll", () => all(letters.discardAll))
      .handleRaw("retry", ({ params }) => decide(ReasonBody, (operator) => letters.retry(params.id, operator)))
      .handleRaw("discard", ({ params }) => decide(ReasonBody, (operator) => letters.discard(params.id, operator)))
  })
)

export const layer = Layer.merge(outbox, deadLetters)
