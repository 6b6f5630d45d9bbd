/** One-line mistakes in a replay: effects that happen twice, and events that come out of turn. */
import type { Mutant } from "./mutants.ts"

const replay = "src/operations/replay/Replay.ts"
const tests = "test/operations/Replay.test.ts"

export const replayMutants: ReadonlyArray<Mutant> = [
  {
    name: "replays-to-anybody",
    breaks: "a consumer whose effect has no key of its own has it twice",
    file: replay,
    find: "if (refusal !== undefined) return",
    replace: "if (refusal === undefined) yield* Effect.void\n          else if (refusal.length > 9_999) return",
    seenBy: { file: tests, test: "a consumer that does not say so" }
  },
  {
    name: "replays-what-waits",
    breaks: "an event that its consumer holds has its effect before its turn",
    file: replay,
    find: "version > (cursors.get(key) ?? 0)",
    replace: "version > (cursors.get(key) ?? 0) + 9",
    seenBy: { file: tests, test: "events that wait or were given up" }
  },
  {
    name: "replays-beyond-its-keys",
    breaks: "a mail whose task is forgotten is sent a second time",
    file: replay,
    find: "Date.parse(event.occurredAt) < floor",
    replace: "Date.parse(event.occurredAt) > 8e15",
    seenBy: { file: tests, test: "events that wait or were given up" }
  },
  {
    name: "replays-without-lock",
    breaks: "a later event of an aggregate is applied between two that are handed over",
    file: replay,
    find: 'locks ? "FOR SHARE OF c" : ""',
    replace: 'locks ? "" : ""',
    seenBy: { file: tests, test: "while an aggregate's events are handed over" }
  },
  {
    name: "dry-run-replays",
    breaks: "a count hands events over",
    file: replay,
    find: "if (operator === undefined || first === undefined) return counts",
    replace: 'if (first === undefined) return counts\n        operator ??= { actor: "nobody", reason: "none" }',
    seenBy: { file: tests, test: "a handler gets applied events again" }
  },
  {
    name: "replays-nothing-quietly",
    breaks: "an id that is misspelt passes for an order whose effects are all there",
    file: replay,
    find: "if (after === undefined) {",
    replace: "if (after === null) {",
    seenBy: { file: tests, test: "an aggregate, a type and a time name the events" }
  }
]
