/** The group of faults that are armed in running processes, to see what happens. */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Armed, Decided, Strike } from "../../operations/faults/ArmedFaults.ts"
import { Fault, FaultAction } from "../../platform/FaultInjection.ts"
import { decisionProblems, FilterText, reading, Reason, ReasonBody } from "./AdminParts.ts"

const params = { point: FilterText }

/** The body of `PUT /admin/faults/{point}`. */
export const ArmBody = Schema.Struct({
  ...Fault.fields,
  delayMillis: Schema.optionalKey(Fault.fields.delayMillis),
  reason: Reason
}).annotate({ identifier: "ArmFault", examples: [{ action: "crash", times: 1, reason: "a drill" }] })

export const FaultsApi = HttpApiGroup.make("adminFaults")
  .add(
    reading("list", "/admin/faults", {
      success: Schema.Struct({
        points: Schema.Array(Schema.Struct({ point: Schema.String, actions: Schema.Array(FaultAction) })),
        faults: Schema.Array(Armed.annotate({ identifier: "ArmedFault" })),
        /** As `pid@host`. */
        processes: Schema.Array(Schema.String),
        /** The newest ones, the last one first. */
        strikes: Schema.Array(Strike.annotate({ identifier: "FaultStrike" }))
      }).annotate({ identifier: "Faults" }),
      summary: "List the points that can fail, what is armed there, and what has struck",
      description: "404 where no running process takes faults (FAULTS=on)."
    }),
    HttpApiEndpoint.put("set", "/admin/faults/:point", {
      params,
      payload: ArmBody,
      success: Decided.annotate({ identifier: "FaultDecided" }),
      error: decisionProblems
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Arm a fault in all processes that take faults",
        description: "It strikes `times` times over all of them. The same fault once more changes nothing."
      })
    ),
    HttpApiEndpoint.delete("clear", "/admin/faults/:point", {
      params,
      payload: ReasonBody,
      success: Decided.annotate({ identifier: "FaultDecided" }),
      error: decisionProblems
    }).annotateMerge(OpenApi.annotations({ summary: "Clear a point" }))
  )
  .annotateMerge(
    OpenApi.annotations({ title: "Admin: faults", description: "Make a process fail, to see what happens." })
  )
