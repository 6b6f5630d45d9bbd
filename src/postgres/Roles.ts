/**
 * Least privilege, by two roles: the owner has the schema, and the service's role may read and write its rows and nothing else. An
 * attacker who runs SQL as the service can't change the schema, read files or run programs.
 *
 * The owner grants after each migration. It compares with the grants that are there, so a start without a change writes nothing.
 * Default privileges cover the tables that a later migration makes, and tomorrow's partition.
 */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import * as Rows from "../platform/Rows.ts"

const currentRole = Rows.one(Schema.Struct({ role: Schema.String, isSuperuser: Schema.Boolean }))

/** The role of a connection of the pool, and whether it is a superuser. */
export const current = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  currentRole(sql`SELECT rolname AS role, rolsuper AS "isSuperuser" FROM pg_roles WHERE rolname = current_user`)
)

const statements = Rows.all(Schema.Struct({ statement: Schema.String }))

/** Two processes that grant at once would fail on the catalog's rows: they grant one after the other. */
const grantLock = 7_315_947

/**
 * The statements that make the direct grants of a role on this schema exactly these:
 *
 * - Rows of tables and partitions may be read and written. TRUNCATE, REFERENCES and TRIGGER are refused.
 * - The history of migrations may be read. The operators' audit may be read and added to.
 * - Views may be read, and of sequences their last value (fast/LowWaterMarks.ts).
 * - Functions with the owner's rights may be called. They are not for PUBLIC.
 */
const statementsOf = (sql: SqlClient.SqlClient, schema: string, role: string) =>
  statements(sql`
  WITH place AS (
    SELECT pg_namespace.oid AS schema, roles.oid AS role, owners.oid AS owner,
           quote_ident(nspname) AS "schemaName", quote_ident(roles.rolname) AS "roleName"
    FROM pg_namespace, pg_roles AS roles, pg_roles AS owners
    WHERE nspname = ${schema} AND roles.rolname = ${role} AND owners.rolname = current_user
  ),
  wanted AS (
    SELECT pg_class.oid AS object, CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind, privilege
    FROM place, pg_class, unnest(CASE
      WHEN relkind IN ('v', 'm', 'S') OR relname LIKE 'migrations\\_%' THEN ARRAY['SELECT']
      WHEN relname = 'operator_audit' THEN ARRAY['SELECT', 'INSERT']
      ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'] END) AS privilege
    WHERE relnamespace = schema AND relowner = owner AND relkind IN ('r', 'p', 'v', 'm', 'S')
  ),
  granted AS (
    SELECT pg_class.oid AS object, CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind, privilege_type AS privilege
    FROM place, pg_class, aclexplode(relacl)
    WHERE relnamespace = schema AND relowner = owner AND grantee = role AND relkind IN ('r', 'p', 'v', 'm', 'S')
  ),
  defaults (object, letter, privileges) AS (
    VALUES ('TABLES', 'r'::"char", 'SELECT, INSERT, UPDATE, DELETE'), ('SEQUENCES', 'S', 'SELECT'), ('FUNCTIONS', 'f', 'EXECUTE')
  )
  SELECT 1 AS turn, format('GRANT USAGE ON SCHEMA %s TO %s', "schemaName", "roleName") AS statement FROM place
  WHERE NOT EXISTS (
    SELECT FROM pg_namespace, aclexplode(nspacl) WHERE pg_namespace.oid = schema AND grantee = role AND privilege_type = 'USAGE')
  UNION ALL
  SELECT 2, format('GRANT %s ON %s %s TO %s', privilege, kind, object::regclass, "roleName")
  FROM place, (SELECT * FROM wanted EXCEPT SELECT * FROM granted) AS missing
  UNION ALL
  SELECT 2, format('REVOKE %s ON %s %s FROM %s', privilege, kind, object::regclass, "roleName")
  FROM place, (SELECT * FROM granted EXCEPT SELECT * FROM wanted) AS excess
  UNION ALL
  SELECT 3, format('GRANT EXECUTE ON FUNCTION %s TO %s', pg_proc.oid::regprocedure, "roleName") FROM place, pg_proc
  WHERE pronamespace = schema AND proowner = owner AND prosecdef
    AND NOT EXISTS (SELECT FROM aclexplode(proacl) WHERE grantee = role AND privilege_type = 'EXECUTE')
  UNION ALL
  SELECT 4, format('ALTER DEFAULT PRIVILEGES IN SCHEMA %s GRANT %s ON %s TO %s', "schemaName", privileges, object, "roleName")
  FROM place, defaults
  WHERE NOT EXISTS (
    SELECT FROM pg_default_acl, aclexplode(defaclacl)
    WHERE defaclnamespace = schema AND defaclobjtype = letter AND grantee = role AND defaclrole = owner)
  ORDER BY turn`)

/** As the owner: makes the grants of `role` on these schemas what the service needs, and no more. Returns how many statements that took. */
export const grant = Effect.fn("Roles.grant")(function* (role: string, schemas: ReadonlyArray<string>) {
  const sql = yield* SqlClient.SqlClient
  return yield* sql.withTransaction(
    Effect.gen(function* () {
      yield* sql`SELECT pg_advisory_xact_lock(${grantLock}::int8)`
      let count = 0
      for (const schema of schemas) {
        for (const { statement } of yield* statementsOf(sql, schema, role)) {
          yield* sql.unsafe(statement)
          count++
        }
      }
      return count
    })
  )
})

const standing = Rows.one(
  Schema.Struct({
    schema: Schema.String,
    owner: Schema.String,
    tablesOwner: Schema.NullOr(Schema.String),
    hasOwnersRights: Schema.Boolean
  })
)

/** Asked by the owner: its schema, its name, the tables' owner, and whether `role` has the owner's rights. */
export const against = (role: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    standing(sql`
      SELECT current_schema() AS schema, current_user::text AS owner,
             (SELECT rolname FROM pg_class JOIN pg_roles ON pg_roles.oid = relowner
              WHERE pg_class.oid = to_regclass('migrations_mechanism')) AS "tablesOwner",
             pg_has_role(${role}::name, current_user, 'MEMBER') AS "hasOwnersRights"`)
  )
