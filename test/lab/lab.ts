/**
 * npm run lab [-- --cases N] [--mistake name] [--seed N]: generates and runs cases until one breaks an invariant, then shrinks it and
 * prints its story. Without --cases it runs until it is stopped.
 */
import { Clock, Effect } from "effect"
import { encode } from "./Case.ts"
import { allowFlags, flag, flagNumber, main, mistakeNamed } from "./LabProgram.ts"
import { search } from "./Search.ts"

/** The interval of progress lines. */
const progressMillis = 5_000

allowFlags("mistake", "cases", "seed")
const mistake = mistakeNamed(flag("mistake"))
const cases = flagNumber("cases") ?? Number.MAX_SAFE_INTEGER

await main(
  Effect.gen(function* () {
    const started = yield* Clock.currentTimeMillis
    const seed = flagNumber("seed") ?? started % 1_000_000
    let told = started
    const found = yield* search({
      mistake,
      cases,
      seed,
      onBroken: (input, { detail, invariant }) => {
        console.log(`BROKEN: ${invariant}. ${detail}. Shrinking npm run replay -- ${encode(mistake?.name, input)}`)
      },
      onCase: (run) => {
        const now = Date.now()
        if (now - told < progressMillis) return
        told = now
        console.log(`${run} cases, ${(run / ((now - started) / 1_000)).toFixed(1)} a second`)
      }
    })
    const seconds = ((yield* Clock.currentTimeMillis) - started) / 1_000
    if (found === undefined) {
      console.log(`${cases} cases hold, ${(cases / seconds).toFixed(1)} a second (seed ${seed})`)
      return 0
    }
    console.log(`\n${found.outcome.story.print(found.violation)}\n`)
    console.log(
      `found in case ${found.cases} (seed ${seed}), shrunk in ${found.shrinkCases} more; ${seconds.toFixed(1)} s in all`
    )
    console.log(`npm run replay -- ${encode(mistake?.name, found.input)}`)
    return 1
  })
)
