/**
 * The statement of a mark, in its forms. It is written by hand: a template would be put together anew for each mark.
 *
 * Its parameters are the rows' places, their numbers in order, and the partition and the offset of each. A number's index is found by a binary search.
 */
/**
 * Deletes the rows where the fetch found them, without a look into an index. Another row may be there by now, so its number has to be the same.
 *
 * All marks lock their rows in order of `ctid`, in which Postgres reads them: an old owner's and the new owner's can't deadlock. Other statements skip
 * locked rows.
 */
const deleted = `
  DELETE FROM outbox_events WHERE ctid = ANY ($1::text[]::tid[]) AND seq = ($2::int8[])[width_bucket(seq, $2::int8[])]`

const published = `
  published AS (
    ${deleted}
    RETURNING *, ($3::int4[])[width_bucket(seq, $2::int8[])] AS broker_partition,
              ($4::int8[])[width_bucket(seq, $2::int8[])] AS broker_offset
  )`

/**
 * Makes the statement's commit asynchronous. If Postgres crashes and loses a mark, the events are sent again as duplicates. Waiting for the
 * disk would cost a lane milliseconds, and would delay the commits of business transactions.
 */
const asynchronous = `(SELECT clock_now() AS now, set_config('synchronous_commit', 'off', true) OFFSET 0) AS asynchronous`

export const deleting = `WITH published AS (${deleted} RETURNING 1) SELECT count(*) FROM ${asynchronous}, published`

const intoArchive = `
  INSERT INTO event_log (event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
                         occurred_at, trace_id, span_id, data, broker_partition, broker_offset, published_at)
  SELECT event_id, topic, event_type, schema_version, aggregate_type, aggregate_id, aggregate_version,
         occurred_at, trace_id, span_id, data, broker_partition, broker_offset, asynchronous.now
  FROM ${asynchronous}, published`

export const archiving = `WITH ${published} ${intoArchive}`

/** Leaves out the events whose id is in the archive, and names them. */
export const archivingOnce = `
  WITH ${published}, archived AS (${intoArchive} ORDER BY seq ON CONFLICT DO NOTHING RETURNING event_id)
  SELECT event_id::text AS "eventId" FROM published EXCEPT ALL SELECT event_id::text FROM archived`
