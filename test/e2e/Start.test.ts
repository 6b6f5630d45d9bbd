/** Starting and stopping on a bare machine: the embedded Postgres, its leftovers, and a user's mistakes. */
import { PgClient } from "@effect/sql-pg"
import { assert, it } from "@effect/vitest"
import { Effect, Exit, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { execFile } from "node:child_process"
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { eventually } from "../support/Counters.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"

const cli = Path.join(root, "src/paid-once.js")

/** Runs a command of `paid-once` to its end. */
const run = (args: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) =>
  Effect.callback<{ readonly code: number | string; readonly stdout: string; readonly stderr: string }>((resume) => {
    const child = execFile(
      process.execPath,
      [cli, ...args],
      { env: { PATH: process.env["PATH"], ...plantedEnv(), ...env }, timeout: 50_000 },
      (error, stdout, stderr) =>
        resume(Effect.succeed({ code: error === null ? 0 : (error.code ?? "killed"), stdout, stderr }))
    )
    return Effect.sync(() => void child.kill("SIGKILL"))
  })

const serve = (directory: string, env: Readonly<Record<string, string>> = {}) =>
  ServiceProcess.start({ env: { DATA_DIRECTORY: directory, PORT: "0", LOG_LEVEL: "Warn", ...env } })

const orderBody = JSON.stringify({
  customerId: "ada",
  currency: "EUR",
  lines: [{ sku: "book", quantity: 1, unitAmountMinor: 100 }]
})

const placeOrder = (url: string) =>
  Effect.promise(async () => {
    const response = await fetch(`${url}/orders`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: orderBody
    })
    return ((await response.json()) as { readonly id: string }).id
  })

const orderExists = (url: string, id: string) =>
  Effect.promise(async () => (await fetch(`${url}/orders/${id}`)).status === 200)

/** The embedded server's pid, from Postgres' own file. */
const postgresPid = (directory: string) => {
  const file = Path.join(directory, "postgres/data/postmaster.pid")
  return existsSync(file) ? Number(readFileSync(file, "utf8").split("\n")[0]) : undefined
}

it.live("a bare start keeps its data, survives kill -9, and Ctrl-C stops Postgres last", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    const first = yield* serve(directory)
    assert.strictEqual(Number(readFileSync(Path.join(directory, "service.pid"), "utf8")), first.pid)
    const id = yield* placeOrder(first.url!)
    const server = postgresPid(directory)
    assert.isDefined(server)

    yield* first.signal("SIGKILL")
    yield* first.exit
    const second = yield* serve(directory)
    assert.strictEqual(postgresPid(directory), server, "the leftover Postgres is joined")
    assert.isTrue(yield* orderExists(second.url!, id))

    // A second process of the service on the same data: when the first one leaves, Postgres stays.
    const third = yield* ServiceProcess.start({
      roles: "dispatcher",
      env: { DATA_DIRECTORY: directory, LOG_LEVEL: "Warn" }
    })
    assert.isNull(third.url)
    yield* third.signal("SIGINT")
    assert.strictEqual(yield* third.exit, 0)
    assert.isTrue(yield* orderExists(second.url!, id))

    assert.strictEqual(Number(readFileSync(Path.join(directory, "service.pid"), "utf8")), second.pid)
    const refused = yield* run(["serve"], { DATA_DIRECTORY: directory, PORT: new URL(second.url!).port })
    assert.strictEqual(refused.code, 1)
    assert.strictEqual(Number(readFileSync(Path.join(directory, "service.pid"), "utf8")), second.pid)

    // Ctrl-C under npm sends the signal twice, which counts as one.
    yield* second.signal("SIGINT")
    yield* Effect.sleep("50 millis")
    yield* second.signal("SIGINT")
    assert.strictEqual(yield* second.exit, 0, second.output())
    assert.isUndefined(postgresPid(directory))
    assert.isFalse(existsSync(Path.join(directory, "service.pid")))

    const fourth = yield* serve(directory)
    assert.isTrue(yield* orderExists(fourth.url!, id))
  }).pipe(Effect.scoped)
)

it.live("reset clears the data, and refuses while the service runs", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    const id = yield* Effect.scoped(
      Effect.gen(function* () {
        const service = yield* serve(directory)
        const refused = yield* run(["reset"], { DATA_DIRECTORY: directory })
        assert.strictEqual(refused.code, 1)
        assert.match(refused.stderr, /in use|running/i)
        return yield* placeOrder(service.url!)
      })
    )
    const done = yield* run(["reset"], { DATA_DIRECTORY: directory })
    assert.strictEqual(done.code, 0, done.stderr)
    const service = yield* serve(directory)
    assert.isFalse(yield* orderExists(service.url!, id))
  }).pipe(Effect.scoped)
)

it.live("reset clears what the service keeps, mails too, and nothing else, and says what", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    const at = (name: string) => Path.join(directory, name)
    const ours = [
      "mail/018f3a2e-0000-7000-8000-000000000001@paid-once.example.eml",
      "kafka/node-1/log",
      "service-1.pid"
    ]
    const others = ["mail/inbox", "kafka/notes", "postgres/report.pdf", "service.pid.bak", "elsewhere/kept.eml"]
    for (const name of [...ours, ...others]) {
      mkdirSync(Path.dirname(at(name)), { recursive: true })
      writeFileSync(at(name), "")
    }
    // A link in the place of a file is removed, and what it points at is kept.
    symlinkSync(at("elsewhere/kept.eml"), at("service.pid"))
    const done = yield* run(["reset"], { DATA_DIRECTORY: directory })
    assert.strictEqual(done.code, 0, done.stderr)
    assert.match(done.stdout, /^Cleared postgres, kafka, mail, service(-1)?\.pid, service(-1)?\.pid in /)
    for (const name of ours) assert.isFalse(existsSync(at(name)), name)
    for (const name of others) assert.isTrue(existsSync(at(name)), name)
    const again = yield* run(["reset"], { DATA_DIRECTORY: Path.join(directory, "none") })
    assert.strictEqual(again.code, 0)
    assert.match(again.stdout, /^There is no /)
  }).pipe(Effect.scoped)
)

it.live("reset leaves a link in the place of a directory, and what it leads to, and says so", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    const at = (name: string) => Path.join(directory, name)
    const mail = "foreign/018f3a2e-0000-7000-8000-000000000001@paid-once.example.eml"
    mkdirSync(at("foreign/data"), { recursive: true })
    for (const name of [mail, "foreign/password", "foreign/data/PG_VERSION"]) writeFileSync(at(name), "")
    for (const name of ["postgres", "mail"]) symlinkSync(at("foreign"), at(name))
    const done = yield* run(["reset"], { DATA_DIRECTORY: directory })
    assert.strictEqual(done.code, 0, done.stderr)
    assert.notInclude(done.stdout, "Cleared")
    assert.include(done.stdout, `Left postgres, mail in ${directory}: a link is not followed.`)
    for (const name of [mail, "foreign/password", "foreign/data/PG_VERSION", "postgres", "mail"]) {
      assert.isTrue(existsSync(at(name)), name)
    }
  }).pipe(Effect.scoped)
)

it.live("data of another Postgres major is refused with both versions named", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    mkdirSync(Path.join(directory, "postgres/data"), { recursive: true })
    writeFileSync(Path.join(directory, "postgres/data/PG_VERSION"), "13\n")
    writeFileSync(Path.join(directory, "postgres/password"), "secret")
    const { code, stderr } = yield* run(["serve"], { DATA_DIRECTORY: directory, PORT: "0" })
    assert.strictEqual(code, 1)
    assert.match(stderr, /13/)
    assert.match(stderr, /18/)
    assert.match(stderr, /npm run reset/)
  }).pipe(Effect.scoped)
)

it.live("wrong variables refuse the start, each in a line that names it, its value and what is allowed", () =>
  Effect.gen(function* () {
    const { code, stderr } = yield* run(["serve"], {
      PORT: "http",
      KAFKA_BROKERS: "kafka9092",
      OUTBOX_BATCH_SIZE: "0",
      OUTBOX_NOTIFY: "yes",
      LOG_LEVEL: "loud",
      FAULTS: "dispatcher.after-fetch=explode",
      DEMO_CONTROL_URL: "http://127.0.0.1:1 https://evil.example",
      DATABASE_URL: "mysql://user:secret@host/db",
      SMTP_URL: "smtp://user:secret@host?pool=true",
      MAIL_FROM: "Shop <shop@host.example>",
      MAIL_CUSTOMER_HOST: "host.example, other.example",
      TASK_RETRY_DELAYS: "1m,5 minutes"
    })
    assert.strictEqual(code, 1)
    for (const line of [
      `PORT: "http" is not a whole number from 0 to 65535`,
      `KAFKA_BROKERS: "kafka9092" is not host:port`,
      `OUTBOX_BATCH_SIZE: "0" is not a whole number from 1 to 10000`,
      `OUTBOX_NOTIFY: "yes" is not on or off`,
      `LOG_LEVEL: "loud" is not one of`,
      `FAULTS: "dispatcher.after-fetch=explode" is not off, on`,
      `DEMO_CONTROL_URL: "http://127.0.0.1:1 https://evil.example" is not http://127.0.0.1:PORT`,
      `DATABASE_URL: the value is not a postgres:// URL`,
      `SMTP_URL: the value is not smtp://host:port or smtps://host:port`,
      `MAIL_FROM: "Shop <shop@host.example>" is not an address`,
      `MAIL_CUSTOMER_HOST: "host.example, other.example" is not a host name`,
      `TASK_RETRY_DELAYS: "1m,5 minutes" is not a list of at most 50 times like 30s,5m,2h,1d`
    ])
      assert.include(stderr, line)
    assert.notInclude(stderr, "secret")
    assert.notInclude(stderr, "    at ")
  })
)

it.live("a heartbeat that is not well below its lease refuses the start", () =>
  Effect.gen(function* () {
    const { code, stderr } = yield* run(["serve"], { TASK_LEASE_MILLIS: "2000", TASK_HEARTBEAT_MILLIS: "1000" })
    assert.strictEqual(code, 1)
    assert.include(stderr, "TASK_HEARTBEAT_MILLIS must be at most a third of TASK_LEASE_MILLIS")
  })
)

it.live("wrong usage exits with 2, and help with 0", () =>
  Effect.gen(function* () {
    assert.strictEqual((yield* run(["serve", "--roles", "http,dispatch"])).code, 2)
    assert.strictEqual((yield* run(["serve", "--role", "http"])).code, 2)
    assert.strictEqual((yield* run(["migrat"])).code, 2)
    const help = yield* run(["--help"])
    assert.strictEqual(help.code, 0)
    for (const command of ["serve", "migrate", "gateway", "demo", "reset"]) assert.include(help.stdout, command)
  })
)

it.live("a busy port refuses the start with a line that names PORT", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const directory = yield* TestDatabase.dataDirectory
    const port = yield* Effect.acquireRelease(
      Effect.callback<{ readonly number: number; readonly close: () => void }>((resume) => {
        const server = createServer().listen(0, "127.0.0.1", () => {
          const address = server.address()
          const number = typeof address === "object" && address !== null ? address.port : 0
          resume(Effect.succeed({ number, close: () => void server.close() }))
        })
      }),
      ({ close }) => Effect.sync(close)
    )
    const { code, stderr } = yield* run(["serve"], {
      DATABASE_URL: Redacted.value(url),
      DATA_DIRECTORY: directory,
      PORT: String(port.number)
    })
    assert.strictEqual(code, 1)
    assert.match(stderr, new RegExp(`PORT: can't listen on 127.0.0.1:${port.number}`))
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)

it.live("an unreachable database refuses the start with a line that names DATABASE_URL", () =>
  Effect.gen(function* () {
    const { code, stderr } = yield* run(["migrate"], {
      DATABASE_URL: "postgres://nobody:secret@127.0.0.1:1/none",
      DATABSE_URL: "postgres://nobody:secret@127.0.0.1:1/none"
    })
    assert.include(stderr, "DATABSE_URL is set, and this service reads no such variable: is DATABASE_URL meant?")
    assert.strictEqual(code, 1)
    assert.match(stderr, /DATABASE_URL: can't connect/)
    assert.notInclude(stderr, "secret")
  })
)

it.live("migrate applies what is missing once, and two at a time do no harm", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.make("template0")
    const env = { DATABASE_URL: Redacted.value(url) }
    const results = yield* Effect.all([run(["migrate", "--json"], env), run(["migrate", "--json"], env)], {
      concurrency: "unbounded"
    })
    for (const { code, stderr } of results) assert.strictEqual(code, 0, stderr)
    const applied = results.flatMap(({ stdout }) => (JSON.parse(stdout) as { applied: ReadonlyArray<string> }).applied)
    assert.deepStrictEqual(applied.toSorted(), [...new Set(applied)].toSorted())
    assert.include(applied, "0104_outbox")
    const again = yield* run(["migrate"], env)
    assert.match(again.stdout, /up to date/)
  }).pipe(Effect.scoped)
)

it.live("the schema of an older version refuses the start in one line that says what to do", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase.make("template0")
    const older = PgClient.layer({ url, maxConnections: 1 })
    yield* SqlClient.SqlClient.use(
      (sql) => sql`CREATE TABLE migrations_mechanism AS SELECT 1 AS migration_id, 'clock' AS name`
    ).pipe(Effect.provide(older))
    const { code, stderr } = yield* run(["serve"], { DATABASE_URL: Redacted.value(url), PORT: "0" })
    assert.strictEqual(code, 1)
    assert.match(
      stderr,
      /the schema of an older version \(0001_clock in migrations_mechanism\).*npm run reset.*DATABASE_URL/
    )
    assert.notInclude(stderr, "    at ")
  }).pipe(Effect.scoped)
)

it.live("roles in processes of their own share one database", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const directory = yield* TestDatabase.dataDirectory
    const start = (roles: string) =>
      ServiceProcess.start({
        roles,
        env: { DATABASE_URL: Redacted.value(url), DATA_DIRECTORY: directory, PORT: "0", LOG_LEVEL: "Warn" }
      })
    const [http] = yield* Effect.all([start("http"), start("dispatcher"), start("consumers,maintenance")], {
      concurrency: "unbounded"
    })
    const id = yield* placeOrder(http.url!)
    yield* eventually(
      "the order's event to be published and applied",
      Effect.promise(async () => {
        const text = await (await fetch(`${http.url}/orders/${id}/timeline`)).text()
        return text.includes(`"published"`) && text.includes(`"analytics":"applied"`)
      })
    )
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)

it.live("a second signal ends a stop that hangs, with 1", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const directory = yield* TestDatabase.dataDirectory
    const service = yield* ServiceProcess.start({
      env: {
        DATABASE_URL: Redacted.value(url),
        DATA_DIRECTORY: directory,
        PORT: "0",
        LOG_LEVEL: "Warn",
        FAULTS: "pay.after-intent=delay:1:600000"
      }
    })
    const id = yield* placeOrder(service.url!)
    const hanging = yield* Effect.forkChild(
      Effect.exit(
        Effect.tryPromise(() =>
          fetch(`${service.url}/orders/${id}/pay`, {
            method: "POST",
            headers: { "content-type": "application/json", "idempotency-key": "k" },
            body: JSON.stringify({ paymentMethod: "pm_ok" })
          })
        )
      )
    )
    yield* eventually(
      "the payment to hang",
      Effect.promise(async () => (await (await fetch(`${service.url}/orders/${id}`)).text()).includes(`"paying"`))
    )
    yield* service.signal("SIGTERM")
    yield* eventually(
      "the service to be stopping",
      Effect.map(Effect.exit(Effect.tryPromise(() => fetch(`${service.url}/health/live`))), Exit.isFailure)
    )
    // Once the second signal is far enough from the first not to count as its echo.
    const again = Effect.forever(Effect.andThen(service.signal("SIGTERM"), Effect.sleep("100 millis")))
    assert.strictEqual(yield* Effect.raceFirst(service.exit, again), 1)
    hanging.interruptUnsafe()
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)
