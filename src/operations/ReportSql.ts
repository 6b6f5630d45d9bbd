/** Parts of the SQL of both reports and both redrives: bounded counts, bounded lists, and filters. */
import { Statement } from "effect/sql"

/** Which events; a field that is not set matches all. */
export interface EventFilter {
  readonly eventType?: string | undefined
  readonly aggregateId?: string | undefined
  /** Only events that wait for this cause, as {@link causeOf} words it. */
  readonly cause?: string | undefined
  /** Only of these last seconds. */
  readonly sinceSeconds?: number | undefined
}

/** A part of a list, newest first. `cursor` is the `nextCursor` of the part before. */
export interface Page {
  readonly limit: number
  readonly cursor?: string | undefined
}

/** Counting stops here. A person needs to know that there are more, not how many. */
export const countLimit = 100_000

/** The most entries of a list. */
export const listLimit = 1_000

/** A column `name` with the number of rows that `from` gives, counted up to {@link countLimit}. */
export const counted = (sql: Statement.Constructor, name: string, from: Statement.Fragment): Statement.Fragment =>
  sql`(SELECT count(*) FROM (SELECT FROM ${from} LIMIT ${sql.literal(String(countLimit))}) AS counted)::int4 AS ${sql(name)}`

/** The condition that each of these columns has its value; a column without a value is not looked at. */
export const matching = (
  sql: Statement.Constructor,
  wanted: Readonly<Record<string, string | undefined>>
): Statement.Fragment =>
  sql.and([
    sql`TRUE`,
    ...Object.entries(wanted).flatMap(([column, value]) =>
      value === undefined ? [] : [sql`${sql(column)} = ${value}`]
    )
  ])

/** The conditions of a filter's cause and time, over these columns. */
export const narrowed = (
  sql: Statement.Constructor,
  { cause, sinceSeconds }: EventFilter,
  columns: { readonly error: string; readonly at: string }
): Statement.Fragment =>
  sql.and([
    sql`TRUE`,
    ...(cause === undefined ? [] : [sql`${sql.literal(causeOf(columns.error))} = ${cause}`]),
    ...(sinceSeconds === undefined
      ? []
      : [sql`${sql(columns.at)} >= clock_now() - ${sinceSeconds}::float8 * interval '1 second'`])
  ])

/** One statement over all of these. There is at least one. */
export const unionAll = (
  sql: Statement.Constructor,
  selects: ReadonlyArray<Statement.Fragment>,
  ending: Statement.Fragment
): Statement.Fragment => sql`${Statement.join(" UNION ALL ", false)(selects)} ${ending}`

/** A person recognises a cause by its first words. */
const causeLength = 160

/** The cause of an error: its first line, without the ids and numbers by which equal failures differ. Of a column that may be null. */
export const causeOf = (column: string): string =>
  `left(regexp_replace(split_part(coalesce(${column}, 'unknown'), E'\\n', 1),
    '[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|[0-9]+([.:][0-9]+)*', '…', 'g'), ${causeLength})`
