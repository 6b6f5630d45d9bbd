/**
 * Which processes are members of a group, and which of them owns which slot: the lanes of the dispatchers, the partitions of an embedded consumer.
 * For operators only: it is as the locks were a moment ago.
 *
 * A process is `pid@host`, as its control connection calls itself. Of a session whose name this role may not read, it is the backend's number.
 */
import { Effect, Schema } from "effect"
import { type SqlError, SqlClient } from "effect/sql"
import * as OwnershipLocks from "./OwnershipLocks.ts"
import * as Rows from "./Rows.ts"

const held = Rows.all(Schema.Struct({ key: Schema.Int, owner: Schema.String }))

/** The sessions that hold locks of this class, with the second key of each. */
const holders = (lockClass: number) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    held(sql`
      SELECT l.objid::int8::int4 AS key,
             coalesce(substring(a.application_name FROM ' control (.+)$'), 'backend ' || l.pid) AS owner
      FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
      WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.classid = ${String(OwnershipLocks.unsigned(lockClass))}::int8::oid
      ORDER BY owner, key`)
  )

/** The owner of each slot of the group. A slot that nobody owns is missing. */
export const of = (group: string): Effect.Effect<ReadonlyMap<number, string>, SqlError.SqlError, SqlClient.SqlClient> =>
  Effect.map(holders(OwnershipLocks.slotClassOf(group)), (rows) => new Map(rows.map(({ key, owner }) => [key, owner])))

/** The members of the group, whether they own a slot or not. */
export const members = (group: string): Effect.Effect<ReadonlyArray<string>, SqlError.SqlError, SqlClient.SqlClient> =>
  Effect.map(holders(OwnershipLocks.memberClassOf(group)), (rows) => rows.map(({ owner }) => owner))
