/** npm run replay -- TOKEN: runs one case again and prints its story. Exits with 1 if an invariant breaks. */
import { Effect, Result } from "effect"
import { decode } from "./Case.ts"
import { main, mistakeNamed } from "./LabProgram.ts"
import { run } from "./Scheduler.ts"
import { partsOf } from "./Search.ts"

const token = decode(process.argv[2] ?? "")
if (Result.isFailure(token)) {
  console.error(token.failure)
  process.exit(2)
}
const { input, mistake } = token.success

await main(
  Effect.gen(function* () {
    const { story, violation } = yield* run(input, partsOf(mistakeNamed(mistake)))
    console.log(story.print(violation))
    return violation === undefined ? 0 : 1
  })
)
