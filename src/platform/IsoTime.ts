/** Times in SQL as text that every client reads alike. */

/** An expression for a `timestamptz` as ISO 8601 in UTC with milliseconds, whatever the session's time zone: NULL stays NULL. */
export const isoTime = (expression: string): string =>
  `to_char(${expression} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`
