/** The group of the doctor: what is wrong with the running system, and what mends it. */
import { HttpApiGroup, OpenApi } from "effect/http-api"
import { DoctorReport } from "../../operations/doctor/Check.ts"
import { reading } from "./AdminParts.ts"

export const DoctorApi = HttpApiGroup.make("adminDoctor")
  .add(
    reading("doctor", "/admin/doctor", {
      success: DoctorReport,
      summary: "Look for what is wrong",
      description:
        "The checks of `paid-once doctor`, run now, on connections that can't write: some seconds, and up to two minutes where something stands still. " +
        "Who asks meanwhile is told the same report. Metrics are those of the process that answers. " +
        "A check that could not look is `not checked`, with the reason."
    })
  )
  .annotateMerge(OpenApi.annotations({ title: "Admin: doctor", description: "Findings, each with its fix." }))
