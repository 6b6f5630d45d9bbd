/**
 * npm run mistakes [-- --write] [--only name] [--cases N]: plants each mistake, searches for a case that catches it, and prints a table.
 * With --write the shrunk cases become the stored tokens, and their stories the pages of test/mistakes. With --pages the pages are written
 * from the stored tokens, which takes a second.
 */
import { Effect, Result } from "effect"
import { writeFile } from "node:fs/promises"
import { decode, encode } from "./Case.ts"
import { allowFlags, flag, flagNumber, main, mistakeNamed } from "./LabProgram.ts"
import { mistakes } from "./mistakes/index.ts"
import { pageOf, pathOf, readTokens, tokensPath } from "./Pages.ts"
import { run } from "./Scheduler.ts"
import { partsOf, search, timed } from "./Search.ts"

/** More than any of them needs. */
const defaultCases = 3_000
/** One seed for all, so that the table is the same each time. */
const defaultSeed = 1
/** The first case found may be long, so the shortest story of a few is kept. */
const defaultFinds = 3

allowFlags("write", "pages", "only", "cases", "seed", "finds")
const write = process.argv.includes("--write")
const cases = flagNumber("cases") ?? defaultCases
const seed = flagNumber("seed") ?? defaultSeed
const finds = flagNumber("finds") ?? (write ? defaultFinds : 1)
const only = mistakeNamed(flag("only"))

const columns = [24, 52, 7, 9, 7] as const
const row = (cells: ReadonlyArray<string | number>) =>
  cells.map((cell, index) => String(cell).padEnd(columns[index] ?? 0)).join(" ")

/** Writes the pages of the stored tokens. */
const writePages = Effect.gen(function* () {
  const tokens = yield* Effect.promise(readTokens)
  for (const mistake of mistakes) {
    const token = tokens[mistake.name] ?? ""
    const decoded = decode(token)
    if (Result.isFailure(decoded)) continue
    const outcome = yield* run(decoded.success.input, partsOf(mistake))
    console.log(row([mistake.name, outcome.violation?.invariant ?? "NOT CAUGHT", "", outcome.story.length]))
    yield* Effect.promise(() => writeFile(pathOf(mistake), pageOf(mistake, token, outcome)))
  }
  return 0
})

await main(
  process.argv.includes("--pages")
    ? writePages
    : Effect.gen(function* () {
        const tokens: Record<string, string> = { ...(yield* Effect.promise(readTokens)) }
        let missed = 0
        console.log(row(["mistake", "caught by", "cases", "steps", "seconds"]))
        for (const mistake of mistakes) {
          if (only !== undefined && mistake !== only) continue
          const found = yield* Effect.forEach(
            Array.from({ length: finds }, (_, index) => index),
            (index) => timed(search({ mistake, cases, seed: seed + index }))
          )
          const [first] = found
          if (first?.value === undefined) {
            missed += 1
            console.log(row([mistake.name, "NOT CAUGHT", cases, "", first?.seconds.toFixed(1) ?? ""]))
            continue
          }
          console.log(
            row([
              mistake.name,
              first.value.violation.invariant,
              first.value.cases,
              first.value.outcome.story.length,
              first.seconds.toFixed(1)
            ])
          )
          const shortest = found
            .flatMap(({ value }) => (value === undefined ? [] : [value]))
            .toSorted((a, b) => a.outcome.story.length - b.outcome.story.length)[0]!
          const token = encode(mistake.name, shortest.input)
          if (write) {
            tokens[mistake.name] = token
            yield* Effect.promise(() => writeFile(pathOf(mistake), pageOf(mistake, token, shortest.outcome)))
          }
        }
        if (write) {
          const stored = Object.fromEntries(mistakes.map(({ name }) => [name, tokens[name]]))
          yield* Effect.promise(() => writeFile(tokensPath, `${JSON.stringify(stored, null, 2)}\n`))
        }
        return missed === 0 ? 0 : 1
      })
)
