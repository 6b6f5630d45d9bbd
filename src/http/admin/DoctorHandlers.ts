/** The handler of `DoctorApi.ts`. */
import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Doctor } from "../../operations/doctor/Doctor.ts"
import * as Turn from "../../platform/Turn.ts"
import { Api } from "../Api.ts"

export const layer = HttpApiBuilder.group(
  Api,
  "adminDoctor",
  Effect.fn(function* (handlers) {
    const { run } = yield* Doctor
    // It takes seconds: other requests don't wait for its turn.
    return handlers.handle("doctor", () => Turn.aside(run))
  })
)
