/**
 * The roles of the embedded server and their passwords.
 *
 * - `paid_once` is the superuser. It makes the others, and only tests and operators log in as it.
 * - `paid_once_owner` owns the database and everything in it: migrations run as it.
 * - `paid_once_service` is the service's own role. It may connect; what else it may do is granted by those who own the tables.
 *
 * None but the superuser may run programs, read or write files of the server, or change the server's settings.
 */
import { createHmac } from "node:crypto"

/** The name of the database, and of the superuser. */
export const databaseName = "paid_once"

export const ownerRole = "paid_once_owner"
export const serviceRole = "paid_once_service"

/** A role's password, from the superuser's: one secret is kept, and no role can compute that of another. */
export const passwordOf = (secret: string, role: string) =>
  role === databaseName ? secret : createHmac("sha256", secret).update(role).digest("hex")

/**
 * The URL of the database for a role, by the Unix socket in `directory`. Its name contains the port, where that is not the usual one. The
 * client refuses a server that does not know the password.
 */
export const urlOf = (directory: string, port: string | undefined, secret: string, role: string) => {
  const host = encodeURIComponent(directory) + (port === undefined ? "" : `:${port}`)
  return `postgres://${role}:${passwordOf(secret, role)}@${host}/${databaseName}?require_auth=scram-sha-256`
}

/** Postgres takes a line as a statement when it runs without a server. */
const line = (statement: string) => statement.replaceAll(/\s*\n\s*/g, " ").trim()

const role = (secret: string, name: string) => [
  line(`DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '${name}') THEN CREATE ROLE ${name}; END IF;
  END $$`),
  line(`ALTER ROLE ${name} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS
    PASSWORD '${passwordOf(secret, name)}'`)
]

/** Makes the roles, in the database `postgres`. May be repeated. */
export const roles = (secret: string) => [ownerRole, serviceRole].flatMap((name) => role(secret, name))

/** Gives the database to its owner, and takes from everybody what Postgres grants by default. May be repeated. */
export const database = [
  `ALTER DATABASE ${databaseName} OWNER TO ${ownerRole}`,
  `REVOKE ALL ON DATABASE ${databaseName}, postgres, template1 FROM PUBLIC`,
  `GRANT CONNECT ON DATABASE ${databaseName} TO ${serviceRole}`
]

/**
 * Undoes what a role may do to itself: change its password, and set parameters that its next sessions begin with. Takes from everybody large
 * objects, which belong to no table, so no grant is needed to fill the disk with them. In the database `paid_once`. May be repeated.
 */
export const renewal = (secret: string) => [
  ...roles(secret),
  ...[ownerRole, serviceRole].flatMap((name) => [
    `ALTER ROLE ${name} RESET ALL`,
    `ALTER ROLE ${name} IN DATABASE ${databaseName} RESET ALL`
  ]),
  "REVOKE EXECUTE ON FUNCTION lo_creat(int4), lo_create(oid), lo_from_bytea(oid, bytea) FROM PUBLIC"
]
