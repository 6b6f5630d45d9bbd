/**
 * A check of the doctor: what it looks at, and what it found. A check reads only, and each of its statements is bounded by its session.
 *
 * A check that can't look says so. It is neither well nor a finding: silence of a check must not pass for good news.
 */
import { Cause, Clock, Effect, Schema } from "effect"
import { SqlError } from "effect/sql"
import { innermost } from "../../platform/Innermost.ts"

/** Something that is wrong, and what mends it. */
export const Finding = Schema.Struct({
  /** A sentence: what is wrong, with its figures. */
  problem: Schema.String,
  /** A sentence: what to do. */
  fix: Schema.String,
  /** The command that does it, or shows the next step; null where there is none. */
  command: Schema.NullOr(Schema.String)
}).annotate({ identifier: "DoctorFinding" })
export type Finding = typeof Finding.Type

/** What a check has come to. */
export const CheckReport = Schema.Struct({
  group: Schema.String,
  name: Schema.String,
  outcome: Schema.Literals(["ok", "finding", "not checked"]),
  /** Of `ok` the figures that it saw; of `not checked` why. */
  told: Schema.String,
  findings: Schema.Array(Finding)
}).annotate({ identifier: "DoctorCheck" })
export type CheckReport = typeof CheckReport.Type

export const DoctorReport = Schema.Struct({
  checks: Schema.Array(CheckReport),
  /** Findings of all checks. */
  findings: Schema.Int,
  /** Checks that could not look. */
  notChecked: Schema.Int
}).annotate({ identifier: "DoctorReport" })
export type DoctorReport = typeof DoctorReport.Type

/** What a check returns: figures, findings, or why it could not look. */
export type Outcome =
  | { readonly _tag: "Told"; readonly told: string; readonly findings: ReadonlyArray<Finding> }
  | { readonly _tag: "NotChecked"; readonly why: string }

/** See the head of this file. */
export interface Check<R = never> {
  readonly group: string
  /** In lower case with hyphens. Unique. */
  readonly name: string
  /**
   * While it has findings the fixes of the later checks wait: what they start would make its findings worse. While it can't look, those wait that start
   * a process.
   */
  readonly mendFirst?: true
  /** A check that waits for something may take longer than others. */
  readonly boundMillis?: number
  readonly run: Effect.Effect<Outcome, unknown, R>
}

/** The check looked: it is well where there are no findings. */
export const told = (text: string, findings: ReadonlyArray<Finding> = []): Outcome => ({
  _tag: "Told",
  told: text,
  findings
})

export const notChecked = (why: string): Outcome => ({ _tag: "NotChecked", why })

/** Opens psql on the database of a service that has one of its own. The embedded one is opened otherwise: {@link throughPsql}. */
const psqlOpened = 'psql "$DATABASE_URL"'

const quoted = (statements: string): string => `"${statements.replace(/["\\$`]/g, "\\$&")}"`

/** Statements for psql, as an operator types them. Together they are one transaction. */
export const psql = (statements: string): string => `${psqlOpened} -c ${quoted(statements)}`

/** Statements for psql and then those of a file, in one transaction. */
export const psqlFile = (statements: string, path: string): string =>
  `${psqlOpened} -1 -c ${quoted(statements)} -f ${path}`

/** The report with `opened` as the way to open psql. */
export const throughPsql = (report: DoctorReport, opened: string): DoctorReport => ({
  ...report,
  checks: report.checks.map((check) => ({
    ...check,
    findings: check.findings.map((finding) => ({
      ...finding,
      command: finding.command?.replaceAll(psqlOpened, () => opened) ?? null
    }))
  }))
})

/** A check looks at a few rows and asks a few questions: a longer one hangs, and others shall still be told. */
const checkMillis = 20_000

/** All checks together: an answer comes within the two minutes that the console waits. Lanes and consumers that stand still take most of it. */
const wholeMillis = 110_000

const whyOf = (cause: Cause.Cause<unknown>): string => {
  const error = Cause.squash(cause)
  return SqlError.isSqlError(error) && error.reason._tag === "AuthorizationError"
    ? `this role may not look: ${innermost(error)}`
    : innermost(error)
}

const settled = <R>(
  { boundMillis = checkMillis, group, name, run }: Check<R>,
  leftMillis: number
): Effect.Effect<CheckReport, never, R> =>
  (leftMillis <= 0
    ? Effect.succeed(notChecked(`the checks before it took ${wholeMillis / 1_000} s, the time of all`))
    : Effect.timeout(run, Math.min(boundMillis, leftMillis))
  ).pipe(
    Effect.catchCause((cause) => Effect.succeed(notChecked(whyOf(cause)))),
    Effect.map((outcome): CheckReport =>
      outcome._tag === "NotChecked"
        ? { group, name, outcome: "not checked", told: outcome.why, findings: [] }
        : {
            group,
            name,
            outcome: outcome.findings.length === 0 ? "ok" : "finding",
            told: outcome.told,
            findings: outcome.findings
          }
    )
  )

/** By the words of the fix: a process of the service is to be started. */
const starts = ({ command, fix }: Finding): boolean => /\bstart\b/i.test(fix) || command?.includes(" serve") === true

/**
 * Runs the checks one after the other, within two minutes: a live system has one more statement at a time, and never many. Behind a check that is to
 * be mended first the findings are told without a fix, as {@link Check} says.
 */
export const runAll = Effect.fn("Doctor.runAll")(function* <R>(checks: ReadonlyArray<Check<R>>) {
  const reports: Array<CheckReport> = []
  const endMillis = (yield* Clock.currentTimeMillis) + wholeMillis
  let first: CheckReport | undefined
  const held = (finding: Finding): Finding => {
    if (first === undefined || (first.outcome === "not checked" && !starts(finding))) return finding
    const fix =
      first.outcome === "not checked"
        ? `Start nothing yet: ${first.name} could not look, and a start may do harm. Look again once it can`
        : `Wait with this one, and start nothing: mend what ${first.name} has found first, and look again`
    return { problem: finding.problem, fix, command: null }
  }
  for (const check of checks) {
    const report = yield* settled(check, endMillis - (yield* Clock.currentTimeMillis))
    reports.push({ ...report, findings: report.findings.map(held) })
    if (check.mendFirst !== true || report.outcome === "ok") continue
    if (first === undefined || (first.outcome === "not checked" && report.outcome === "finding")) first = report
  }
  return {
    checks: reports,
    findings: reports.reduce((sum, { findings }) => sum + findings.length, 0),
    notChecked: reports.filter(({ outcome }) => outcome === "not checked").length
  } satisfies DoctorReport
})
