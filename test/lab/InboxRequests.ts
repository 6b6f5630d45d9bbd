/** An operator's decisions about events that a consumer could not apply. */
import { Effect } from "effect"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import { make, type Request } from "./Requests.ts"

const operator = { actor: "operator", reason: "as the case says" }

export const operateInbox = (
  what: "retry" | "discard" | "skip",
  event: { readonly consumer: string; readonly name: string; readonly id: string }
): Request =>
  make(
    what === "skip"
      ? `go on with ${event.name} at ${event.consumer} without what is missing`
      : `${what} ${event.name} at ${event.consumer}`,
    -1,
    false,
    Effect.gen(function* () {
      const letters = yield* InboxDeadLetters
      yield* Effect.result(letters[what](event.consumer, event.id, operator))
      return { _tag: "Done" }
    })
  )
