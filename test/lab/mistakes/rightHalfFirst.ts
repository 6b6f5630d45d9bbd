import { Layer } from "effect"
import { Halves } from "../../../src/outbox/Dispatcher.ts"
import type { Mistake } from "./Mistake.ts"

export const rightHalfFirst: Mistake = {
  name: "right-half-first",
  what: "A batch that the broker refuses is divided to find the event that it means; the second half is sent first.",
  why: "A search by halves finds it either way, and a stack is the shortest code for one: push left, push right, pop. But what is popped first is sent first.",
  rule: "A batch is divided left before right: an event must not overtake an earlier one of its aggregate.",
  read: "src/outbox/Dispatcher.ts",
  plant: (real) => ({
    dispatcher: Layer.provide(
      real.dispatcher,
      Layer.succeed(Halves, (events) => {
        const middle = Math.ceil(events.length / 2)
        return [events.slice(middle), events.slice(0, middle)]
      })
    )
  })
}
