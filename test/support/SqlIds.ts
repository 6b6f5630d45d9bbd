/** Ids for rows that a statement makes by the thousand. The service draws its own (src/platform/Ids.ts). */

/** A SQL expression: a new UUID version 7 with the time of the expression `at`, a timestamptz. */
export const idAt = (at: string): string =>
  `overlay(overlay(gen_random_uuid()::text PLACING substring(uuid_v7_floor_at(${at})::text FOR 13) FROM 1 FOR 13) PLACING '7' FROM 15 FOR 1)::uuid`
