/** The doctor of a live system: `paid-once doctor`, and `GET /admin/doctor` in a process that has it. */
import { Context, Effect, Fiber, RcRef, type Scope } from "effect"
import type { DoctorReport } from "./Check.ts"

export class Doctor extends Context.Service<
  Doctor,
  {
    /**
     * Runs every check on connections of its own, which can't write and whose statements are bounded. It never fails: what it could not look at is in
     * the report. Those who ask while an examination runs get its report.
     */
    readonly run: Effect.Effect<DoctorReport>
  }
>()("paid-once/operations/Doctor") {
  /** One examination at a time: those who ask meanwhile wait for that one. It ends when nobody waits for it. */
  static readonly make = (examine: Effect.Effect<DoctorReport>): Effect.Effect<Doctor["Service"], never, Scope.Scope> =>
    Effect.map(RcRef.make({ acquire: Effect.forkScoped(examine) }), (examination) =>
      Doctor.of({ run: Effect.scoped(Effect.flatMap(RcRef.get(examination), Fiber.join)) })
    )
}
