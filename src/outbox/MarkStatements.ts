/**
 * The statement of a mark, in its forms. Written by hand: a template would cost more.
 *
 * Rows are found by a range of one index, from the first number of a run to its last, and each number by a binary search in the run. `seq = ANY (…)`
 * alone is planned by what the queue had when it was last analyzed. As a rule that is nothing: then Postgres reads the whole lane for each mark.
 */

/**
 * Makes the commit asynchronous. If Postgres crashes and loses a mark, the events are sent again as duplicates. Waiting for the disk would cost a lane
 * milliseconds, and would delay the commits of business transactions.
 */
const asynchronous = "(SELECT clock_now() AS now, set_config('synchronous_commit', 'off', true) OFFSET 0) AS clock"

const columns = `event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version, occurred_at,
  trace_id, span_id, data, broker_partition, broker_offset`

const archiving = `
  INSERT INTO event_log (${columns}, published_at)
  SELECT ${columns}, clock.now - age_millis * interval '1 ms' FROM ${asynchronous}, published`

/** How a mark ends, behind a CTE of its rows with the name `published`. `named` leaves out the events whose id is in the archive, and names them. */
export const markEnd = {
  deleted: ` SELECT count(*) FROM ${asynchronous}, published`,
  archived: archiving,
  named: `, archived AS (${archiving} ORDER BY seq ON CONFLICT DO NOTHING RETURNING event_id)
    SELECT event_id::text AS "eventId" FROM published EXCEPT ALL SELECT event_id::text FROM archived`
} as const

/** Deletes a run. Its parameters are its lane, numbers, partition, first offset and age. Numbers that were out of order would stay in the queue. */
const runText = (index: number, end: keyof typeof markEnd) => {
  const $ = (parameter: number, type: string) => `$${index * 5 + parameter}::${type}`
  const seqs = $(2, "int8[]")
  const position = `width_bucket(seq, ${seqs})`
  return `run_${index} AS (
    DELETE FROM outbox_events
    WHERE lane = ${$(1, "int2")} AND seq BETWEEN (${seqs})[1] AND (${seqs})[cardinality(${seqs})] AND seq = (${seqs})[${position}]
    RETURNING ${end === "deleted" ? "1" : `*, ${$(3, "int4")} AS broker_partition, ${$(4, "int8")} + ${position} - 1 AS broker_offset, ${$(5, "int4")} AS age_millis`}
  )`
}

/** A mark of so many runs. */
export const markText = (runs: number, end: keyof typeof markEnd): string => {
  const indexes = [...Array(runs).keys()]
  const all = indexes.map((index) => `SELECT * FROM run_${index}`)
  return `WITH ${indexes.map((index) => runText(index, end)).join(", ")}, published AS (${all.join(" UNION ALL ")})${markEnd[end]}`
}
