/** The doctor's check of rights: this role may do what the service does. The owner grants it after each migration ({@link Roles}). */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Rows from "../../platform/Rows.ts"
import { type Check, told } from "./Check.ts"

const rights = Rows.all(Schema.Struct({ right: Schema.String, object: Schema.String }))

/** The rights that this session's role lacks. It may have them by a group. A superuser lacks nothing. */
const lacking = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  rights(sql`
    SELECT string_agg(privilege, ', ' ORDER BY privilege) AS right, relname AS object
    FROM pg_class, unnest(CASE
      WHEN relkind IN ('v', 'S') OR relname LIKE 'migrations\\_%' THEN ARRAY['SELECT']
      WHEN relname = 'operator_audit' THEN ARRAY['SELECT', 'INSERT']
      ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'] END) AS privilege
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'S')
      AND NOT CASE relkind WHEN 'S' THEN has_sequence_privilege(oid, privilege) ELSE has_table_privilege(oid, privilege) END
    GROUP BY relname
    UNION ALL
    SELECT 'EXECUTE', oid::regprocedure::text FROM pg_proc
    WHERE pronamespace = current_schema()::regnamespace AND prosecdef AND NOT has_function_privilege(oid, 'EXECUTE')
    ORDER BY object`)
)

/** The check. Another role may have rights that the service's lacks: the doctor looks with the service's own. */
export const check: Check<SqlClient.SqlClient> = {
  group: "schema",
  name: "rights",
  run: Effect.map(lacking, (all) =>
    told(
      "this role has every right that the service needs",
      all.map(({ object, right }) => ({
        problem: `this role lacks ${right} on ${object}: statements of the service fail`,
        fix: "Let the owner grant it anew",
        command: "npm run paid-once -- migrate"
      }))
    )
  )
}
