/** The group of sums: whether orders, events, effects and money agree. */
import { HttpApi, HttpApiGroup, OpenApi } from "effect/http-api"
import { SumsView } from "../../application/views/Sums.ts"
import { causesQuery, reading } from "./AdminParts.ts"

export const SumsApi = HttpApiGroup.make("adminSums")
  .add(
    reading("sums", "/admin/sums", {
      query: { sinceSeconds: causesQuery.sinceSeconds },
      success: SumsView,
      summary: "Add up orders, events, effects and money",
      description:
        "Of the orders that were placed in the last seconds, an hour's by default, and of the 2000 newest at most. Read in one statement."
    })
  )
  .annotateEndpoints(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotateMerge(OpenApi.annotations({ title: "Admin: sums", description: "Whether all books agree." }))
