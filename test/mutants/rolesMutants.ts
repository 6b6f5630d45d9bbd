/** Mistakes in what reaches the database, and as which role: TLS, least privilege, a full disk. */
import type { Mutant } from "./mutants.ts"

const sockets = "src/postgres/tls/Sockets.ts"
const address = "src/postgres/tls/Address.ts"
const grants = "src/postgres/Roles.ts"
const roles = "test/postgres/Roles.test.ts"
const outages = "test/http/Outage.test.ts"
const probe = "src/http/WriteProbe.ts"
const tls = "test/postgres/Tls.test.ts"

export const rolesMutants: ReadonlyArray<Mutant> = [
  {
    name: "takes-any-certificate",
    breaks: "verify-ca and verify-full talk to whoever answers",
    file: sockets,
    find: 'rejectUnauthorized: mode === "verify-ca" || mode === "verify-full"',
    replace: "rejectUnauthorized: false",
    seenBy: { file: tls, test: "a certificate of another authority is refused" }
  },
  {
    name: "verify-full-takes-any-name",
    breaks: "any certificate of the authority will do for any host",
    file: sockets,
    find: '...(mode === "verify-full" ? {} : { checkServerIdentity: () => undefined })',
    replace: "checkServerIdentity: () => undefined",
    seenBy: { file: tls, test: "verify-full connects to a server with the right name" }
  },
  {
    name: "require-falls-back",
    breaks: "sslmode=require speaks clear text to a server without TLS",
    file: sockets,
    find: 'chunk[0] === no && tls.mode === "prefer"',
    replace: "chunk[0] === no",
    seenBy: { file: tls, test: "without TLS at the server, require is refused" }
  },
  {
    name: "silent-about-clear-text",
    breaks: "nobody hears of a connection that leaves the machine unencrypted",
    file: sockets,
    find: "isLocal ? () => {} : () => onClearText(target.host)",
    replace: "() => {}",
    seenBy: { file: tls, test: "a connection in clear text that leaves the machine is a warning" }
  },
  {
    name: "ignores-unknown-parameters",
    breaks: "a misspelt sslmode is a connection in clear text",
    file: address,
    find: "if (!known.has(name))",
    replace: "if (false)",
    seenBy: { file: "test/postgres/Address.test.ts", test: "a parameter that would be ignored is refused" }
  },
  {
    name: "unix-socket-by-tcp",
    breaks: "a URL that names a Unix socket connects to the port of localhost",
    file: address,
    find: 'host.startsWith("/")',
    replace: "false",
    seenBy: { file: "test/postgres/UnixSockets.test.ts", test: "a pool over a Unix socket is checked" }
  },
  {
    name: "grants-truncate",
    breaks: "who finds a place for SQL empties a table with one statement that no retention and no lock stops",
    file: grants,
    find: "ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'] END",
    replace: "ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE'] END",
    seenBy: { file: roles, test: "the service's role is refused DDL" }
  },
  {
    name: "audit-can-be-rewritten",
    breaks: "who takes over the service removes the traces from the operators' audit",
    file: grants,
    find: "WHEN relname = 'operator_audit' THEN ARRAY['SELECT', 'INSERT']",
    replace: "WHEN false THEN ARRAY['SELECT']",
    seenBy: { file: roles, test: "the service's role is refused DDL" }
  },
  {
    name: "keeps-other-grants",
    breaks: "a right that was granted once by hand stays for ever",
    file: grants,
    find: "SELECT * FROM granted EXCEPT SELECT * FROM wanted",
    replace: "SELECT * FROM granted WHERE false",
    seenBy: { file: roles, test: "a second start grants nothing, and one that finds other grants" }
  },
  {
    name: "no-default-privileges",
    breaks: "tomorrow's partition is closed to the service",
    file: grants,
    find: "\n  FROM place, defaults\n  WHERE NOT EXISTS (",
    replace: "\n  FROM place, defaults\n  WHERE false AND NOT EXISTS (",
    seenBy: { file: roles, test: "the tables of a later migration" }
  },
  {
    name: "migrates-without-need",
    breaks: "a service that owns nothing can't start",
    file: "src/postgres/Migrations.ts",
    find: "return oldest === undefined || migrations.some(([id]) => id > oldest.newest)",
    replace: "return true",
    seenBy: { file: roles, test: "with the service's URL alone" }
  },
  {
    name: "a-full-disk-is-a-fault",
    breaks: "2,998 of 3,000 orders are answered 500, and readiness says 200",
    file: "src/platform/DatabaseOutage.ts",
    find: "(?:08|28|53|57|58)",
    replace: "(?:08|28|57|58)",
    seenBy: { file: outages, test: "the service is unready while nothing can be written" }
  },
  {
    name: "ready-on-a-full-disk",
    breaks: "a load balancer keeps sending orders to a service that can't write one",
    file: probe,
    find: '{ status: "unready", sinceSeconds',
    replace: '{ status: "ready", sinceSeconds',
    seenBy: { file: outages, test: "the service is unready while nothing can be written" }
  },
  {
    name: "a-stack-for-each-refusal",
    breaks: "an hour of a full disk is gigabytes of log",
    file: "src/http/Observe.ts",
    find: "!aborted && !isOutage &&",
    replace: "!aborted &&",
    seenBy: { file: outages, test: "the service is unready while nothing can be written" }
  },
  {
    name: "probes-once",
    breaks: "a service stays unready after its disk has space again",
    file: probe,
    find: "        yield* Effect.sleep(probeMillis)\n        yield* doubted.open",
    replace: "        yield* Effect.sleep(probeMillis)",
    seenBy: { file: "test/http/WriteProbe.test.ts", test: "an outage is probed until it ends" }
  },
  {
    name: "an-outage-burns-attempts",
    breaks: "a disk that is full overnight kills every task",
    file: "src/tasks/TaskRunner.ts",
    find: "if (reason !== undefined) {",
    replace: "if (failure instanceof NotNow) {",
    seenBy: { file: "test/tasks/Outage.test.ts", test: "SQLSTATE " }
  },
  {
    name: "a-lease-burns-attempts",
    breaks: "an outage after the lease of a payment uses up its recovery, and the payment becomes manual",
    file: "src/tasks/TaskRunner.ts",
    find: "failure instanceof NotNow",
    replace: "false",
    seenBy: { file: "test/application/RecoverInOutage.test.ts", test: "an outage between the lease" }
  },
  {
    name: "waits-for-its-own-limit",
    breaks: "an event whose statement exceeds temp_file_limit blocks its partition for ever",
    file: "src/platform/DatabaseOutage.ts",
    find: '  "53400"\n',
    replace: "",
    seenBy: { file: "test/platform/DatabaseOutage.test.ts", test: "requests, tasks and consumers agree" }
  }
]
