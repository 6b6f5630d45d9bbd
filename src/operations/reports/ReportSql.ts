/** Parts of the SQL of the reports and redrives: bounded counts, bounded lists, filters, causes, and the preview of a redrive. */
import { type Effect, Schema } from "effect"
import { type SqlError, Statement } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"

/** Which events; a field that is not set matches all. */
export interface EventFilter {
  readonly eventType?: string | undefined
  readonly aggregateId?: string | undefined
  /** Only events of these last seconds. */
  readonly sinceSeconds?: number | undefined
  /** Only events that failed so, in the words of {@link causeOf}. */
  readonly cause?: string | undefined
}

/** Which part of a list: at most `limit` items behind `cursor`, the last item of the page before. */
export interface PageOptions<Cursor extends string = string> {
  readonly limit: number
  readonly cursor?: Cursor | undefined
}

/** Counting stops here. A person needs to know that there are more, not how many. */
export const countLimit = 100_000

/** Events that failed and are tried again by themselves: how many, and since when and why the one that is tried longest. */
export const Retrying = Schema.Struct({
  /** Counted up to {@link countLimit}. */
  retrying: Schema.Int,
  /** Since when the first of them is held; null where there is none. */
  retryingSeconds: Schema.NullOr(Schema.Finite),
  /** Why that one failed last, in the words of {@link causeOf}. */
  retryingCause: Schema.NullOr(Schema.String)
})
export type Retrying = typeof Retrying.Type

/** The columns of {@link Retrying} over these holds, of which at most {@link countLimit} are looked at. */
export const retryingOf = (sql: Statement.Constructor, holds: Statement.Fragment): Statement.Fragment => {
  const looked = sql`(SELECT held_at, last_error FROM ${holds} LIMIT ${sql.literal(String(countLimit))}) AS held`
  return sql`
    (SELECT count(*) FROM ${looked})::int4 AS retrying,
    (SELECT extract(epoch FROM clock_now() - min(held_at)) FROM ${looked})::float8 AS "retryingSeconds",
    (SELECT ${sql.literal(causeOf("last_error"))} FROM ${looked} ORDER BY held_at LIMIT 1) AS "retryingCause"`
}

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

/** The condition that a row is of these last seconds, by this column. */
export const inLast = (sql: Statement.Constructor, column: string, seconds: number | undefined): Statement.Fragment =>
  seconds === undefined ? sql`TRUE` : sql`${sql(column)} >= clock_now() - ${seconds}::float8 * interval '1 second'`

/** The condition that this column has an error of this cause. */
export const failedSo = (sql: Statement.Constructor, column: string, cause: string | undefined): Statement.Fragment =>
  cause === undefined ? sql`TRUE` : sql`${sql.literal(causeOf(column))} = ${cause}`

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

/** The effect of a redrive of many, before it is done: their number, their most frequent causes, and a few of their ids. */
export const Preview = Schema.Struct({
  /** Counted up to {@link countLimit}. */
  matching: Schema.Int,
  groups: Schema.Array(Schema.Struct({ cause: Schema.String, count: Schema.Int })),
  examples: Schema.Array(Schema.String)
})
export type Preview = typeof Preview.Type
const onePreview = Rows.one(Preview)

/** More causes than a person looks at before a decision; and a few ids to look up. */
const previewGroups = 20
const previewExamples = 5

/** The preview of what `rows` selects: statements with the columns `id` and `last_error`. */
export const preview = (
  sql: Statement.Constructor,
  rows: Statement.Fragment
): Effect.Effect<Preview, SqlError.SqlError> =>
  onePreview(sql`
    WITH matching AS MATERIALIZED (SELECT id, ${sql.literal(causeOf("last_error"))} AS cause FROM (${rows} LIMIT ${countLimit}) AS found)
    SELECT (SELECT count(*) FROM matching)::int4 AS matching,
           (SELECT coalesce(json_agg(json_build_object('cause', cause, 'count', count) ORDER BY count DESC, cause), '[]')
            FROM (SELECT cause, count(*) FROM matching GROUP BY cause ORDER BY count(*) DESC, cause LIMIT ${previewGroups}) AS grouped) AS groups,
           (SELECT coalesce(json_agg(id), '[]') FROM (SELECT id FROM matching ORDER BY id LIMIT ${previewExamples}) AS first) AS examples`)
