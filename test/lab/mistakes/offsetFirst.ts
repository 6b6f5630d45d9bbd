import { Array, Effect, Layer } from "effect"
import { ApplySlice } from "../../../src/inbox/ApplySlice.ts"
import type { Mistake } from "./Mistake.ts"

export const offsetFirst: Mistake = {
  name: "offset-first",
  what: "The consumer commits its offset when it gets the events, and applies them then: auto-commit, as many clients do by default.",
  why: "An event can't come twice. But one that was not applied when the process died does not come again either.",
  rule: "First the database, then the offset.",
  read: "src/inbox/ApplySlice.ts",
  plant: (real) => ({
    applySlice: Layer.effect(
      ApplySlice,
      Effect.map(ApplySlice, (real) =>
        ApplySlice.of({
          run: (subscriber, slice) =>
            Effect.andThen(slice.commit, real.run(subscriber, { ...slice, commit: Effect.void })),
          runTogether: (subscriber, slices) =>
            Effect.andThen(
              Effect.forEach(slices, (slice) => slice.commit, { discard: true }),
              real.runTogether(
                subscriber,
                Array.map(slices, (slice) => ({ ...slice, commit: Effect.void }))
              )
            )
        })
      )
    ).pipe(Layer.provide(real.applySlice))
  })
}
