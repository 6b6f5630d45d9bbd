/** The doctor of a live system: `paid-once doctor`, and `GET /admin/doctor` in a process that has it. */
import { Context, type Effect } from "effect"
import type { DoctorReport } from "./Check.ts"

export class Doctor extends Context.Service<
  Doctor,
  {
    /**
     * Runs every check on connections of its own, which can't write and whose statements are bounded. It never fails: what it could not look at is in
     * the report.
     */
    readonly run: Effect.Effect<DoctorReport>
  }
>()("paid-once/operations/Doctor") {}
