/** One-line mistakes in the rebuild of a projection: gaps, doubles, and half-made rows that a reader would see. */
import type { Mutant } from "./mutants.ts"

const room = "src/operations/rebuild"
const rebuild = "test/operations/Rebuild.test.ts"
const races = "test/operations/RebuildRaces.test.ts"

export const rebuildMutants: ReadonlyArray<Mutant> = [
  {
    name: "swap-without-lock",
    breaks: "a slice that has written the old rows and commits after the swap is lost, or there twice",
    file: `${room}/Swap.ts`,
    find: "yield* lockLive(projection)",
    replace: "yield* Effect.void",
    seenBy: { file: races, test: "a slice that has written before the swap" }
  },
  {
    name: "swap-without-last",
    breaks: "what the consumer applied between the last look and the lock is missing in the new rows",
    file: `${room}/Rebuild.ts`,
    find: "while (rest.length > 0) rest = (yield* page(rest)).rest",
    replace: "while (rest.length > 9_999) rest = (yield* page(rest)).rest",
    seenBy: { file: races, test: "what the consumer applies between" }
  },
  {
    name: "swap-leaves-rows",
    breaks: "rows that no event bears out stay",
    file: `${room}/Swap.ts`,
    find: "WHERE NOT EXISTS (SELECT FROM ${sql(rebuilt)} AS new WHERE ${sameKey} AND ROW",
    replace:
      "WHERE EXISTS (SELECT FROM ${sql(rebuilt)} AS new WHERE ${sameKey}) AND NOT EXISTS (SELECT FROM ${sql(rebuilt)} AS new WHERE ${sameKey} AND ROW",
    seenBy: { file: rebuild, test: "a damaged projection is made anew" }
  },
  {
    name: "rebuilds-what-was-given-up",
    breaks: "an event that an operator has given up has its effect after all, and differs from the consumer's marks",
    file: `${room}/AppliedRuns.ts`,
    find: "const gaps = without.get(keyOf(aggregate, 0)) ?? []",
    replace: "const gaps = without.get(keyOf(aggregate, -1)) ?? []",
    seenBy: { file: rebuild, test: "events that the consumer holds come later" }
  },
  {
    name: "compares-each-cursor-with-each",
    breaks: "a rebuild of many aggregates does not come to its end where the statistics say that there are none",
    file: `${room}/AppliedRuns.ts`,
    find: "FROM (SELECT aggregate_id, aggregate_type, version AS live, 0 AS own FROM consumer_cursors WHERE consumer_name = ${consumer}\n",
    replace: `FROM (SELECT live.aggregate_id, live.aggregate_type, live.version AS live, coalesce(own.version, 0) AS own
            FROM consumer_cursors AS live LEFT JOIN rebuild_cursors AS own
              ON own.consumer_name = live.consumer_name AND own.aggregate_id = live.aggregate_id AND own.aggregate_type = live.aggregate_type
            WHERE live.consumer_name = \${consumer} AND live.version > coalesce(own.version, 0)\n`,
    seenBy: { file: rebuild, test: "whatever plan Postgres takes" }
  },
  {
    name: "forgets-what-was-given-up",
    breaks: "a rebuild gives an event its effect that was given up before it was sent",
    file: "src/inbox/Cursors.ts",
    find: "if (gaps.length === 0) return\n      yield* sql`",
    replace: "if (gaps.length < 9_999) return\n      yield* sql`",
    seenBy: { file: rebuild, test: "what was given up at the outbox" }
  },
  {
    name: "gives-up-what-arrived",
    breaks: "an event that was given up and has arrived after all loses its effect once its mark is gone",
    file: `${room}/AppliedRuns.ts`,
    find: "after_version, until_version FROM consumer_gaps\n      WHERE consumer_name = ${consumer}",
    replace: "aggregate_version - 1, aggregate_version FROM outbox_dead_letters\n      WHERE 'scribe' = ${consumer}",
    seenBy: { file: rebuild, test: "what was given up at the outbox" }
  },
  {
    name: "forgets-a-hold-s-gap",
    breaks: "a rebuild gives an event its effect that an aggregate's hold has passed",
    file: "src/inbox/holds/RetryHold.ts",
    find: "from: cursor, to, gaps }",
    replace: "from: cursor, to }",
    seenBy: { file: rebuild, test: "what was given up at the outbox" }
  },
  {
    name: "rebuilds-without-queue",
    breaks: "an event that was applied and is not archived yet counts as lost",
    file: `${room}/AppliedRuns.ts`,
    find: "if (elsewhere.length > 0) {",
    replace: "if (elsewhere.length > 9_999) {",
    seenBy: { file: rebuild, test: "an event that is applied and not archived yet" }
  },
  {
    name: "rebuilds-with-holes",
    breaks: "where retention has dropped events, a rebuild loses their effect",
    file: `${room}/Rebuild.ts`,
    find: "if (Array.isReadonlyArrayNonEmpty(missing)) {",
    replace: "if (Array.isReadonlyArrayNonEmpty(missing) && missing.length > 9_999) {",
    seenBy: { file: rebuild, test: "where the archive lacks an event" }
  },
  {
    name: "rebuilds-on-leftovers",
    breaks: "what a killed rebuild had made is in the next one's rows too: twice",
    file: `${room}/Swap.ts`,
    find: "LIMIT ${cleanRows})) RETURNING 1)",
    replace: "LIMIT 0 * ${cleanRows})) RETURNING 1)",
    seenBy: { file: rebuild, test: "a rebuild that was cut off leaves nothing" }
  },
  {
    name: "rebuilds-unfenced",
    breaks: "a rebuild that has lost its lock writes beside the one that has it",
    file: `${room}/RebuildRow.ts`,
    find: "(rows) => rows.length > 0",
    replace: "(rows) => rows.length >= 0",
    seenBy: { file: rebuild, test: "a rebuild whose row another one has taken" }
  },
  {
    name: "rebuilds-two-at-once",
    breaks: "two rebuilds of a projection run at once, and the second takes the first one's row",
    file: `${room}/Alone.ts`,
    find: "if (!isOurs) return Option.none()",
    replace: "if (!isOurs) yield* Effect.void",
    seenBy: { file: rebuild, test: "two at once" }
  }
]
