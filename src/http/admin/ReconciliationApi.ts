/** The group of the reconciliation: whether all books agree, and the repair of what differs. */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { ReconciliationReport } from "../../application/reconciliation/ReconciliationRuns.ts"
import { decisionProblems, reading, Reason } from "./AdminParts.ts"

/** The body of `POST /admin/reconciliation`. Without one it only looks. */
export const ReconcileBody = Schema.Struct({
  repair: Schema.optionalKey(Schema.Boolean),
  reason: Schema.optionalKey(Reason)
})
  .check(
    Schema.makeFilter(({ reason, repair }: { readonly repair?: boolean; readonly reason?: string }) =>
      repair !== true || reason !== undefined ? true : { path: ["reason"], issue: "is required for a repair" }
    )
  )
  .annotate({ identifier: "Reconcile", examples: [{ repair: true, reason: "the ledger was restored from a backup" }] })

export const ReconciliationApi = HttpApiGroup.make("adminReconciliation")
  .add(
    reading("last", "/admin/reconciliation", {
      success: Schema.Struct({ last: Schema.NullOr(ReconciliationReport) }).annotate({
        identifier: "LastReconciliation"
      }),
      summary: "Get the result of the last reconciliation",
      description:
        "Of any process: the nightly one, a command's, or one that was asked for here. Null before the first."
    }),
    HttpApiEndpoint.post("run", "/admin/reconciliation", {
      payload: ReconcileBody,
      success: ReconciliationReport,
      error: decisionProblems
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Compare all books",
        description:
          "Gateway, payments, orders, events, ledger, revenue, inventory and mail. The body may be left out: then it changes nothing. `repair: true` repairs " +
          "what the use cases can repair, one by one and audited. `items` has what has become of each, and 20 differences of a rule at most. Of many orders it takes minutes."
      })
    )
  )
  .annotateMerge(OpenApi.annotations({ title: "Admin: reconciliation", description: "Differences between the books." }))
