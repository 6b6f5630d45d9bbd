/** Tests of the tests: each mistake of `mutants.ts` is planted, and its test must fail. */
import { assert, inject, it } from "vitest"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import { root } from "../support/Postgres.ts"
import { long } from "../vitest.config.ts"
import { type Mutant, mutants } from "./mutants.ts"

/** Long enough to start vitest on a slow machine, and for a long suite's test that waits until its own limit. */
const timeoutMillis = 300_000
/** That limit: without a mistake these tests take a second at most. */
const plantedTestMillis = 5_000
/** Tests of a long suite take longer without a mistake, and must be red because of it. */
const plantedLongTestMillis = 120_000
const isLong = (file: string) => long.some((pattern) => Path.matchesGlob(file, pattern))
/** For a hook's: it starts Postgres or Kafka, which takes seconds on a slow machine. Without them the test is skipped and sees nothing. */
const plantedHookMillis = 30_000

interface Report {
  readonly testResults: ReadonlyArray<{
    readonly assertionResults: ReadonlyArray<{ readonly title: string; readonly status: string }>
  }>
}

const escaped = (text: string) => text.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&")

/** Runs the mutant's test in a separate vitest, on the Postgres of this run. Returns its result, by implementation. */
const run = async ({ name, seenBy }: Mutant): Promise<ReadonlyArray<string>> => {
  const directory = await mkdtemp(Path.join(tmpdir(), "paid-once-mutant-"))
  try {
    const report = Path.join(directory, "report.json")
    const options = [
      "--config",
      "test/vitest.config.ts",
      "--root",
      ".",
      `--testTimeout=${isLong(seenBy.file) ? plantedLongTestMillis : plantedTestMillis}`,
      `--hookTimeout=${plantedHookMillis}`
    ]
    const which = [seenBy.file, "-t", escaped(seenBy.test), "--reporter=json", `--outputFile.json=${report}`]
    const vitest = Path.join(root, "node_modules/vitest/vitest.mjs")
    const child = spawn(process.execPath, [vitest, "run", ...options, ...which], {
      cwd: root,
      stdio: ["ignore", "ignore", "inherit"],
      env: {
        ...process.env,
        MUTANT: name,
        TEST_DATABASE_URL: inject("postgresUrl"),
        TEST_TEMPLATE_DATABASE: inject("templateDatabase")
      }
    })
    await once(child, "exit")
    const { testResults } = JSON.parse(await readFile(report, "utf8")) as Report
    return testResults
      .flatMap(({ assertionResults }) => assertionResults)
      .filter(({ title }) => title.includes(seenBy.test))
      .map(({ status }) => status)
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

for (const mutant of mutants) {
  it(
    `${mutant.name}: ${mutant.breaks}`,
    async () => {
      assert.include(await run(mutant), "failed", `${mutant.seenBy.file} does not see it`)
    },
    timeoutMillis
  )
}
