/** `paid-once consumers list|pause|resume`, and `paid-once dispatcher pause|resume`: what reads and sends events. */
import { Effect } from "effect"
import { Command } from "effect/cli"
import * as Main from "../main.ts"
import { InboxReport } from "../operations/InboxReport.ts"
import { PauseDecisions } from "../operations/pauses/PauseDecisions.ts"
import { json, onDatabase, print, table } from "./Operator.ts"
import { pauseCommands } from "./Pauses.ts"

const list = Command.make(
  "list",
  { json },
  Effect.fnUntraced(function* ({ json }) {
    const found = yield* onDatabase(
      Effect.gen(function* () {
        const { counts } = yield* InboxReport
        const pauses = (yield* (yield* PauseDecisions).all).filter(({ kind }) => kind === "consumer")
        return yield* Effect.forEach(Main.consumerNames, (consumer) =>
          Effect.map(counts(consumer), (one) => ({
            consumer,
            ...one,
            paused: pauses.find(({ name }) => name === consumer) ?? null
          }))
        )
      })
    )
    yield* print(json, found, () =>
      table([
        ["CONSUMER", "DEAD", "GAPS", "PARKED", "PAUSED"],
        ...found.map(({ consumer, dead, gaps, parked, paused }) => [
          consumer,
          String(dead),
          String(gaps),
          String(parked),
          paused === null ? "" : `since ${paused.pausedAt} by ${paused.actor}: ${paused.reason}`
        ])
      ])
    )
  })
).pipe(Command.withDescription("List the consumers, and what of each waits for a person"))

/** The command. */
export const consumers = Command.make("consumers").pipe(
  Command.withDescription("What reads events: look, pause, resume"),
  Command.withSubcommands([
    list,
    ...pauseCommands("consumer", Main.consumerNames, "Read and apply no more events; they wait in the topic.")
  ])
)

/** The command. */
export const dispatcher = Command.make("dispatcher").pipe(
  Command.withDescription("What sends events: pause a topic, resume it"),
  Command.withSubcommands(
    pauseCommands("topic", Main.topicNames, "Send no more events to a topic; they wait in the queue.")
  )
)
