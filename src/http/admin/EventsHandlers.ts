/** The handlers of the groups in `EventsApi.ts`. */
import { Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { CustomerEvents } from "../../application/views/CustomerEvents.ts"
import { ConsumerReport } from "../../operations/reports/ConsumerReport.ts"
import { OutboxReport } from "../../operations/reports/OutboxReport.ts"
import { Api } from "../Api.ts"
import { badRequest } from "../Problems.ts"
import { answering } from "./AdminAnswers.ts"
import { KnownNames } from "./KnownNames.ts"

const inQuery = (field: string, message: string) =>
  Effect.fail(badRequest([{ in: "query", pointer: `/${field}`, message }]))

const events = HttpApiBuilder.group(
  Api,
  "adminEvents",
  Effect.fn(function* (handlers) {
    const known = yield* KnownNames
    const { search } = yield* CustomerEvents
    const report = yield* OutboxReport
    return handlers
      .handle("search", ({ query: { orderId, ...query } }) =>
        answering(
          Effect.gen(function* () {
            yield* known.inFilter("topic", { in: "query", pointer: "/topic" }, query.topic)
            return yield* search({ ...query, ...(orderId === undefined ? {} : { aggregateIds: [orderId] }) }, query)
          }).pipe(
            Effect.catchTags({
              SearchTooWide: ({ message }) => inQuery("sinceSeconds", `is required: ${message}`),
              CustomerTooLarge: ({ message }) => inQuery("customerId", `is too wide: ${message}`)
            })
          )
        )
      )
      .handle("event", ({ params }) => answering(report.show(params.id, known.names.consumer)))
  })
)

const consumers = HttpApiBuilder.group(
  Api,
  "adminConsumers",
  Effect.fn(function* (handlers) {
    const { all } = yield* ConsumerReport
    return handlers.handle("list", () => Effect.map(all, (items) => ({ items })))
  })
)

export const layer = Layer.merge(events, consumers)
