/** One-line mistakes in the embedded Postgres, its sockets and its files, each with the test that fails because of it. */
import type { Mutant } from "./mutants.ts"

const scramOnly = "src/platform/ScramOnly.ts"
const pidFile = "src/platform/PidFile.ts"
const directoryLock = "src/platform/DirectoryLock.ts"
const ownDirectory = "src/platform/OwnDirectory.ts"
const account = "src/postgres/embedded/Account.ts"
const embedded = "test/postgres/embedded/EmbeddedPostgres.test.ts"
const keeper = "test/postgres/embedded/Keeper.test.ts"
const privileges = "test/postgres/embedded/Privileges.test.ts"
const renewal = "test/postgres/embedded/Renewal.test.ts"

export const embeddedMutants: ReadonlyArray<Mutant> = [
  {
    name: "dead-server-stays-dead",
    breaks: "an embedded Postgres that was killed is never started again",
    file: "src/postgres/embedded/Keeper.ts",
    find: "yield* DirectoryLock.withFreeLock(home, startRenewed(home, host, secret, settings))",
    replace: "yield* DirectoryLock.withFreeLock(home, Effect.undefined)",
    seenBy: { file: keeper, test: "is started again when it was killed" }
  },
  {
    name: "silent-about-the-holder",
    breaks: "nobody learns which frozen process keeps Postgres from being started again",
    file: "src/postgres/embedded/Keeper.ts",
    find: "yield* DirectoryLock.warn(home)",
    replace: "",
    seenBy: { file: keeper, test: "names the process that holds the lock" }
  },
  {
    name: "listens-on-a-port",
    breaks: "any user of the machine can take the address of a dead server",
    file: "src/postgres/embedded/Server.ts",
    find: 'listen_addresses: "", //',
    // An address on which no other server of this machine has the port: the mutant's server starts.
    replace: 'listen_addresses: "127.54.32.10", //',
    seenBy: { file: privileges, test: "admits by SCRAM only" }
  },
  {
    name: "alters-the-system",
    breaks: "a superuser's session can change the server's settings for good",
    file: "src/postgres/embedded/Server.ts",
    find: 'allow_alter_system: "off"',
    replace: 'allow_alter_system: "on"',
    seenBy: { file: privileges, test: "refuses ALTER SYSTEM" }
  },
  {
    name: "owner-is-superuser",
    breaks: "who takes over a session of the service runs programs on the machine",
    file: "src/postgres/embedded/Roles.ts",
    find: "LOGIN NOSUPERUSER",
    replace: "LOGIN SUPERUSER",
    seenBy: { file: privileges, test: "refuses programs, files, settings" }
  },
  {
    name: "public-may-connect",
    breaks: "the service's role reaches databases that are not its own, and makes temporary tables",
    file: "src/postgres/embedded/Roles.ts",
    find: "`REVOKE ALL ON DATABASE ${databaseName}, postgres, template1 FROM PUBLIC`,",
    replace: "",
    seenBy: { file: privileges, test: "lets the service connect" }
  },
  {
    name: "one-password-for-all",
    breaks: "the service's password is the superuser's",
    file: "src/postgres/embedded/Roles.ts",
    find: 'role === databaseName ? secret : createHmac("sha256", secret).update(role).digest("hex")',
    replace: "role === databaseName ? secret : secret",
    seenBy: { file: privileges, test: "tells no role another one's password" }
  },
  {
    name: "locked-out-for-good",
    breaks: "a session of the service that changes its role's password keeps the service out for good",
    file: "src/postgres/embedded/Renewal.ts",
    find: "[...guards, ...Roles.renewal(secret)]",
    replace: "guards",
    seenBy: { file: renewal, test: "is let in again by the next start of the server" }
  },
  {
    name: "keeps-a-roles-parameters",
    breaks: "a session of the service can make all later ones read only",
    file: "src/postgres/embedded/Roles.ts",
    find: "`ALTER ROLE ${name} RESET ALL`,",
    replace: "",
    seenBy: { file: renewal, test: "is let in again by the next start of the server" }
  },
  {
    name: "large-objects-for-all",
    breaks: "a role without any table can fill the disk",
    file: "src/postgres/embedded/Roles.ts",
    find: "REVOKE EXECUTE ON FUNCTION lo_creat(int4), lo_create(oid), lo_from_bytea(oid, bytea) FROM PUBLIC",
    replace: "SELECT 1",
    seenBy: { file: privileges, test: "refuses programs, files, settings" }
  },
  {
    name: "plain-sockets-take-any-login",
    breaks: "a service of the lifted package takes require_auth for a promise, and nobody keeps it",
    file: "src/platform/DatabaseSettings.ts",
    find: `name === "require_auth" || `,
    replace: "",
    seenBy: { file: "test/postgres/UnixSockets.test.ts", test: "the sockets of the lifted package refuse" }
  },
  {
    name: "plain-sockets-of-the-driver",
    breaks: "a Postgres that the URL names by host= may be silent for ever",
    file: "src/platform/DatabaseSettings.ts",
    find: "  const stream = () => {",
    replace: `  if (searchParams.has("host")) return { url }
  const stream = () => {`,
    seenBy: {
      file: "test/postgres/UnixSockets.test.ts",
      test: "a connection over a Unix socket to a server that answers nothing"
    }
  },
  {
    name: "refused-login-is-a-fault",
    breaks: "each request is a 500 with a stack in the log while the database refuses the service's password",
    file: "src/platform/DatabaseOutage.ts",
    find: "/^(?:08|28|53",
    replace: "/^(?:08|53",
    seenBy: { file: "test/http/Outage.test.ts", test: "an outage is 503 with Retry-After" }
  },
  {
    name: "any-layout",
    breaks: "a server is started on data in which the service's role is the superuser",
    file: "src/postgres/embedded/Data.ts",
    find: "return yield* checkLayout(base)",
    replace: "return",
    seenBy: { file: embedded, test: "data of another version, whose roles have other rights" }
  },
  {
    name: "postgres-as-root",
    breaks: "Postgres has root's rights on the machine, by the name of another user",
    file: account,
    find: 'const account: Account = { _tag: "OtherUser", uid: user.uid, gid: user.gid }',
    replace: 'const account = { _tag: "UserNamespace", uid: user.uid, gid: user.gid } as Account',
    seenBy: { file: embedded, test: "root's Postgres is an unprivileged user" }
  },
  {
    name: "unshare-is-missing",
    breaks: "a missing command reads as a missing right",
    file: account,
    find: 'errorCode(cause) === "ENOENT"',
    replace: 'errorCode(cause) === "ENOTDIR"',
    seenBy: { file: embedded, test: "a missing unshare is called missing" }
  },
  {
    name: "foreign-socket-directory",
    breaks: "the server's socket is in a directory that another user has put below /tmp",
    file: "src/postgres/embedded/Socket.ts",
    find: "if (!found.isDirectory() || found.uid !== uid || (found.mode & 0o077) !== 0) {",
    replace: "if (found.uid === -1) {",
    seenBy: { file: embedded, test: "a path too long for a socket" }
  },
  {
    name: "answers-cleartext",
    breaks: "who listens at a dead server's address gets the password",
    file: scramOnly,
    find: "return code !== undefined && steps.has(code)",
    replace: "return code !== 999",
    seenBy: { file: "test/platform/ScramOnly.test.ts", test: "gives nothing to a server " }
  },
  {
    name: "takes-an-unproven-server",
    breaks: "the service talks to a server that does not know its password",
    file: scramOnly,
    find: 'return isProven ? undefined : "it did',
    replace: 'return code === isDone ? undefined : "it did',
    seenBy: { file: "test/platform/ScramOnly.test.ts", test: "gives nothing to a server " }
  },
  {
    name: "readable-lock",
    breaks: "any user of the machine can hold the lock of a directory",
    file: directoryLock,
    find: "constants.O_RDWR, 0o600)",
    replace: "constants.O_RDWR, 0o644)",
    seenBy: { file: "test/platform/DirectoryLock.test.ts", test: "no other user of the machine can hold it" }
  },
  {
    name: "keeps-foreign-pid-files",
    breaks: "a planted link, or the file of a dead process, keeps the name service.pid",
    file: pidFile,
    find: "if (pid === undefined || pid === process.pid || !(await isOurs(pid))) await rm(file)",
    replace: "if (pid === process.pid) await rm(file)",
    seenBy: { file: "test/platform/PidFile.test.ts", test: "a planted link is neither written through nor read" }
  },
  {
    name: "follows-a-strangers-link",
    breaks: "a link that another user has put below /tmp decides where root keeps its data",
    file: ownDirectory,
    find: "if (!isTrusted(there)) {",
    replace: "if (there.uid === -1) {",
    seenBy: { file: "test/platform/OwnDirectory.test.ts", test: "is not behind a stranger's link" }
  },
  {
    name: "below-a-stranger",
    breaks: "the owner of a directory above can replace all data",
    file: ownDirectory,
    find: "checkAbove(at, found)",
    replace: "if (found.uid === self) checkAbove(at, found)",
    seenBy: { file: "test/platform/OwnDirectory.test.ts", test: "is not below a stranger's directory" }
  },
  {
    name: "replaceable-by-everybody",
    breaks: "any user of the machine can put a link in the place of the data",
    file: ownDirectory,
    find: "if ((found.mode & othersWrite) !== 0 && (found.mode & sticky) === 0) {",
    replace: "if (found.uid === -1) {",
    seenBy: { file: "test/platform/OwnDirectory.test.ts", test: "is not below one in which everybody" }
  },
  {
    name: "open-to-its-group",
    breaks: "a group of the machine can put links among the data",
    file: ownDirectory,
    find: "return chmod(path, found.mode & 0o7777 & ~groupWrites)",
    replace: "return",
    seenBy: { file: "test/platform/OwnDirectory.test.ts", test: "is closed to its group" }
  },
  {
    name: "opens-a-planted-lock",
    breaks: "a pipe in the place of the lock freezes the process, and a link makes SQLite open any file",
    file: directoryLock,
    find: "if (!found.isFile()) throw new",
    replace: "if (found.ino === -1) throw new",
    seenBy: { file: "test/platform/DirectoryLock.test.ts", test: "a link or a pipe in its place" }
  },
  {
    name: "mails-behind-a-link",
    breaks: "root closes any directory to others, and fills it with mails",
    file: "src/application/mail/FileTransport.ts",
    find: "if (!found.isDirectory() ||",
    replace: "if (found.ino === -1 &&",
    seenBy: { file: "test/application/mail/FileTransport.test.ts", test: "a link in the place of the directory" }
  },
  {
    name: "writes-through-a-link",
    breaks: "a mail overwrites the file that a planted link leads to",
    file: "src/application/mail/FileTransport.ts",
    find: " | constants.O_NOFOLLOW",
    replace: "",
    seenBy: { file: "test/application/mail/FileTransport.test.ts", test: "a link in the place of the directory" }
  },
  {
    name: "resets-behind-a-link",
    breaks: "a reset deletes what a planted link leads to",
    file: "src/cli/Reset.ts",
    find: '!links.includes("postgres") && ',
    replace: "",
    seenBy: { file: "test/e2e/Start.test.ts", test: "reset leaves a link" }
  },
  {
    name: "foreign-data-directory",
    breaks: "the data is put into a directory whose owner can replace it",
    file: ownDirectory,
    find: "if (!isTrusted(found)) {\n    throw new Error(\n",
    replace: "if (found.uid === -1) {\n    throw new Error(\n",
    seenBy: { file: "test/platform/PidFile.test.ts", test: "a directory of another user is refused" }
  }
]
