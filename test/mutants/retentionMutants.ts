/** One-line mistakes about what may be forgotten: a command that goes by its own shell, and a horizon that is too early. */
import type { Mutant } from "./mutants.ts"

const retention = "src/platform/Retention.ts"
const revenue = "src/application/reconciliation/RevenueOfDay.ts"
const maintenance = "test/operations/Maintenance.test.ts"
const otherShell = "test/application/reconciliation/OtherShell.test.ts"

export const retentionMutants: ReadonlyArray<Mutant> = [
  {
    name: "horizon-moves-back",
    breaks: "who keeps more than others makes what they have deleted look as if it had never been",
    file: retention,
    find: "greatest(r.forgotten_before, excluded.forgotten_before)",
    replace: "excluded.forgotten_before",
    seenBy: { file: maintenance, test: "the horizon is at the end of what was dropped" }
  },
  {
    name: "horizon-stays-behind",
    breaks: "rows are deleted that should still be there by the horizon",
    file: retention,
    find: "greatest(r.forgotten_before, excluded.forgotten_before)",
    replace: "r.forgotten_before",
    seenBy: { file: maintenance, test: "the horizon is at the end of what was dropped" }
  },
  {
    name: "dry-run-forgets",
    breaks: "after a dry run with few days the reconciliation looks at nothing any more",
    file: retention,
    find: "dryRun\n      ? sql`SELECT cutoff::text",
    replace: "dryRun && retentionDays > 9_999\n      ? sql`SELECT cutoff::text",
    seenBy: { file: maintenance, test: "the horizon is at the end of what was dropped" }
  },
  {
    name: "keeps-differ-silently",
    breaks: "two processes of the service keep things for different times, and nobody hears of it",
    file: retention,
    find: "WHERE kept_days <> days",
    replace: "WHERE kept_days > days + 99",
    seenBy: { file: maintenance, test: "two processes of the service" }
  },
  {
    name: "revenue-without-marks",
    breaks: "a repair takes a day's revenue away, for its marks are dropped",
    file: revenue,
    find: "OR (known.is_certain AND",
    replace: "OR (uuid_v7_time(known.event_id) < '-infinity' AND",
    seenBy: { file: otherShell, test: "a repair leaves a day's revenue" }
  },
  {
    name: "revenue-of-the-unread",
    breaks: "a repair counts an event that analytics reads later, and so it counts twice",
    file: "src/application/reconciliation/SqlRule.ts",
    find: "AND c.version >= ${event}.version)",
    replace: "AND c.version >= 0)\n   IS NOT NULL",
    seenBy: { file: otherShell, test: "an event that analytics has not read yet" }
  },
  {
    name: "replays-by-its-shell",
    breaks: "a replay mails again, for the task of the first mail is deleted",
    file: "src/operations/replay/Replay.ts",
    find: "::float8 * 1000 AS floor",
    replace: "::float8 * 0 AS floor",
    seenBy: { file: "test/operations/Replay.test.ts", test: "a shell that keeps tasks for longer" }
  },
  {
    name: "upkeep-by-its-shell",
    breaks: "a command drops the archive that the service keeps",
    file: "src/main.ts",
    find: "settings(inForce))",
    replace: "settings({ ...inForce, ...config }))",
    seenBy: { file: "test/e2e/Maintenance.test.ts", test: "maintenance run drops nothing that the service keeps" }
  },
  {
    name: "archive-off-without-a-note",
    breaks: "each event from a time without the archive is a difference once it is on again",
    file: "src/platform/Retention.ts",
    find: "ON CONFLICT (table_name) DO UPDATE SET forgotten_before = 'infinity'`",
    replace: "ON CONFLICT (table_name) DO NOTHING`",
    seenBy: { file: otherShell, test: "what was published while the archive was off" }
  },
  {
    name: "archive-off-for-ever",
    breaks: "after a time without the archive nobody looks for lost events any more",
    file: "src/platform/Retention.ts",
    find: "AND forgotten_before = 'infinity'`",
    replace: "AND forgotten_before < 'infinity'`",
    seenBy: { file: otherShell, test: "what was published while the archive was off" }
  },
  {
    name: "drops-under-a-snapshot",
    breaks: "a page's snapshot sees neither a dropped day nor the horizon that has moved: its events count as missing",
    file: "src/application/reconciliation/SqlRule.ts",
    find: "LOCK TABLE event_log, processed_events IN ACCESS SHARE MODE",
    replace: "LOCK TABLE orders IN ACCESS SHARE MODE",
    seenBy: { file: otherShell, test: "upkeep drops no day while a page is compared" }
  },
  {
    name: "shell-without-a-word",
    breaks: "each cron job is warned of variables that its shell does not have",
    file: "src/cli/Serve.ts",
    find: '.filter(({ variable }) => (process.env[variable] ?? "") !== "")',
    replace: "",
    seenBy: { file: "test/e2e/Maintenance.test.ts", test: "maintenance run drops nothing that the service keeps" }
  }
]
