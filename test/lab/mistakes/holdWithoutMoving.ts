import { Effect, Layer } from "effect"
import { Queue } from "../../../src/outbox/Queue.ts"
import { changed } from "./fetching.ts"
import type { Mistake } from "./Mistake.ts"

export const holdWithoutMoving: Mistake = {
  name: "hold-without-moving",
  what: "A refused event is set aside and tried again later. Later events of its order stay in the queue, and are sent.",
  why: "Nothing waits for a poison message, and it is tried again in good time. But then it comes behind its own successors.",
  rule: "The aggregate of a refused event is held: its later events wait behind it, those of all others flow.",
  read: "src/outbox/holds/Parking.ts",
  plant: (real) => ({
    queue: Layer.effect(
      Queue,
      Effect.map(Queue, (queue) =>
        Queue.of({
          ...queue,
          fetch: changed(queue, (events) => events.map((event) => ({ ...event, held: false })))
        })
      )
    ).pipe(Layer.provide(real.queue))
  })
}
