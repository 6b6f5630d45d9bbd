/** The group `journeys` of the admin API: the way of an order, hop by hop. */
import { Schema, SchemaTransformation } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { JourneyView } from "../../application/views/JourneyView.ts"
import { problems } from "../ApiParts.ts"
import { OrderIdText } from "../OrdersApi.ts"

const cursorMessage = "must be the nextCursor of the page before"
const VersionText = Schema.String.check(Schema.isPattern(/^\d{1,9}$/, { message: cursorMessage })).pipe(
  Schema.decodeTo(Schema.Int, SchemaTransformation.numberFromString)
)

export const JourneyApi = HttpApiGroup.make("journeys")
  .add(
    HttpApiEndpoint.get("get", "/admin/orders/:id/journey", {
      params: { id: OrderIdText },
      query: { cursor: Schema.optionalKey(VersionText) },
      success: JourneyView,
      error: problems(400, 401, 403, 404, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "The way of an order",
        description:
          "Each change of the order from its request to its effects: when, in which process, under which trace, and what waits for what."
      })
    )
  )
  .annotateMerge(OpenApi.annotations({ title: "Journeys", description: "The way of an order. For operators." }))
