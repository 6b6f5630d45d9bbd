/** The order of a story's steps. */
import { assert, it } from "@effect/vitest"
import * as EventStory from "../../src/operations/reports/EventStory.ts"

it("steps of one millisecond are told in the order in which they happen: an attempt after the first step, and before what came of it", () => {
  const at = "2026-01-01T00:00:00.000Z"
  const story = EventStory.make(
    [{ attempt: 1, at, error: "too large" }],
    "was refused",
    [{ at, actor: "ada", action: "retry", reason: "the limit was raised" }],
    [
      { at, what: "was written" },
      { at: null, what: "published" },
      { at, what: "dead after 1 attempt" }
    ]
  )
  assert.deepStrictEqual(
    story.map(({ what }) => what),
    ["was written", "attempt 1 was refused: too large", "dead after 1 attempt", "retry: the limit was raised"]
  )
})
