/**
 * A failure case of your own for the lab (test/lab). A dispatcher crashes between its send and its mark, and a consumer between its
 * commit and its offset. Nothing is lost, and nothing is applied twice.
 *
 *   npm run example examples/failure-case.ts
 *
 * Then the same case runs with a popular mistake, a dispatcher that marks events before it sends them. The lab shows the event that is lost.
 */
import { Effect } from "effect"
import type { Case } from "../test/lab/Case.ts"
import { main, mistakeNamed } from "../test/lab/LabProgram.ts"
import { run } from "../test/lab/Scheduler.ts"
import { partsOf } from "../test/lab/Search.ts"
import { command } from "../test/lab/Windows.ts"

/** The process that a fault strikes: the one that takes the next batch, or the next slice of the topic. */
const [dispatcher, consumer] = [3, 4]

/**
 * The commands in their order; `test/lab/Case.ts` lists all that there are. `crashAfter` takes the number of an effect, from 0: a batch has two
 * effects, send and mark; a slice has two, commit and offset. The seed decides ids and jitter. Switches change which process goes on; this case
 * needs none.
 */
const crashes: Case = {
  seed: 1,
  commands: [
    command("crashAfter", dispatcher, 0),
    command("crashAfter", consumer, 0),
    command("place"),
    command("startDispatcher"),
    command("decline")
  ],
  switches: []
}

await main(
  Effect.gen(function* () {
    const correct = yield* run(crashes, partsOf(undefined))
    console.log(`${correct.story.print(correct.violation)}\n`)
    const mistaken = yield* run(crashes, partsOf(mistakeNamed("mark-before-ack")))
    console.log(mistaken.story.print(mistaken.violation))
    return correct.violation === undefined && mistaken.violation !== undefined ? 0 : 1
  })
)
