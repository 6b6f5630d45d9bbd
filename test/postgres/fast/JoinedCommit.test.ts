/** COMMIT in one packet with the last statement: against Postgres, and with its answer cut at every position. */
import { PgClient } from "@effect/sql-pg"
import { assert, it, layer } from "@effect/vitest"
import { Cause, Context, Effect, Exit, Fiber, Layer } from "effect"
import type * as Net from "node:net"
import { DatabaseSettings } from "../../../src/platform/DatabaseSettings.ts"
import { Faults } from "../../../src/platform/Faults.ts"
import * as SingleStatement from "../../../src/platform/SingleStatement.ts"
import { Transaction, TransactionEnded } from "../../../src/platform/Transaction.ts"
import * as Database from "../../../src/postgres/Database.ts"
import * as JoinedCommit from "../../../src/postgres/fast/JoinedCommit.ts"
import * as Messages from "../../../src/postgres/fast/Messages.ts"
import { eventually } from "../../support/Counters.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"

/** A pool of one connection with these sockets, `last` for its transactions, an empty table, and the packets that the connection writes. */
const begin = (install: (socket: Net.Socket) => void = JoinedCommit.install) =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const written: Array<string> = []
    const watch = Layer.succeed(Database.SocketSetup, (socket) => {
      const write = socket.write.bind(socket)
      socket.write = (chunk: Uint8Array, ...rest: ReadonlyArray<never>) => {
        written.push(Buffer.from(chunk).toString("latin1"))
        return write(chunk, ...rest)
      }
      install(socket)
    })
    const built = yield* Layer.build(
      Database.layer.pipe(
        Layer.provide(watch),
        Layer.provide(DatabaseSettings.layerOf({ url, maxConnections: 1 })),
        Layer.fresh
      )
    )
    const client = Context.get(built, PgClient.PgClient)
    const last = yield* Effect.provideService(SingleStatement.last(client), SingleStatement.JoinedCommit, true)
    const others = yield* PgClient.PgClient
    yield* others`DROP TABLE IF EXISTS numbers`
    yield* others`CREATE TABLE numbers (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED CHECK (n > 0))`
    const run = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
      Effect.provideService(Transaction.run(effect), PgClient.PgClient, client)
    yield* run(Transaction.use(({ sql }) => sql`SELECT 1`))
    /** The packets that `effect` writes. */
    const packets = <A, E>(effect: Effect.Effect<A, E>) =>
      Effect.suspend(() => {
        written.length = 0
        return Effect.map(effect, () => [...written])
      })
    /** As other connections see them. */
    const numbers = Effect.map(others<{ readonly n: number }>`SELECT n FROM numbers ORDER BY n`, (rows) =>
      rows.map(({ n }) => n)
    )
    return { client, last, run, packets, numbers, others }
  })

const insert = (n: number) =>
  Transaction.use(({ sql }) => sql<{ readonly n: number }>`INSERT INTO numbers VALUES (${n}) RETURNING n`)

/** Notes in `told` that the transaction has committed. */
const telling = (told: Array<string>) =>
  Transaction.use(({ afterCommit }) => afterCommit(Effect.sync(() => void told.push("committed"))))

const hasDied = (exit: Exit.Exit<unknown, unknown>, type: abstract new (...args: ReadonlyArray<never>) => unknown) =>
  Exit.isFailure(exit) && Cause.squash(exit.cause) instanceof type

layer(TestDatabase.layerPool, { excludeTestServices: true })("JoinedCommit", (it) => {
  it.effect(
    "a transaction takes a packet for each statement: BEGIN travels with the first, and COMMIT with the last",
    () =>
      Effect.gen(function* () {
        const { last, numbers, packets, run } = yield* begin()
        const told: Array<string> = []
        const both = (n: number) => run(Effect.andThen(insert(n), last(Effect.tap(insert(n + 1), () => telling(told)))))
        for (const n of [1, 3, 5]) {
          const written = yield* packets(both(n))
          assert.strictEqual(written.length, 2)
          assert.include(written[0], "BEGIN")
          assert.include(written[1], "COMMIT")
        }
        assert.deepStrictEqual(yield* both(7), [{ n: 8 }])
        assert.deepStrictEqual(yield* packets(run(last(insert(9)))).pipe(Effect.map((written) => written.length)), 1)
        assert.deepStrictEqual(yield* numbers, [1, 2, 3, 4, 5, 6, 7, 8, 9])
        assert.strictEqual(told.length, 4)
      })
  )

  it.effect("a last statement that fails writes nothing, and leaves a usable connection", () =>
    Effect.gen(function* () {
      const { last, numbers, run } = yield* begin()
      const told: Array<string> = []
      const failing = Effect.andThen(telling(told), Effect.andThen(insert(1), last(insert(0))))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(run(failing))))
      // Its failure may be caught: the transaction has failed all the same.
      const caught = Effect.andThen(telling(told), Effect.andThen(insert(2), Effect.exit(last(insert(0)))))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(run(caught))))
      assert.deepStrictEqual(yield* numbers, [])
      assert.deepStrictEqual(told, [])
      yield* run(last(insert(3)))
      assert.deepStrictEqual(yield* numbers, [3])
    })
  )

  it.effect("a COMMIT that fails is the failure of its statement", () =>
    Effect.gen(function* () {
      const { last, numbers, run } = yield* begin()
      const told: Array<string> = []
      const twice = run(Effect.andThen(telling(told), Effect.andThen(insert(1), last(insert(1)))))
      const exit = yield* Effect.exit(twice)
      assert.isTrue(Exit.isFailure(exit) && Cause.pretty(exit.cause).includes("numbers_n_key"))
      assert.deepStrictEqual(yield* numbers, [])
      assert.deepStrictEqual(told, [])
      yield* run(insert(2))
      assert.deepStrictEqual(yield* numbers, [2])
    })
  )

  it.effect("no statement comes after the last one, neither in its effect nor behind it", () =>
    Effect.gen(function* () {
      const { last, numbers, run } = yield* begin()
      const within = yield* Effect.exit(run(last(Effect.andThen(insert(1), insert(2)))))
      assert.isTrue(hasDied(within, SingleStatement.SecondStatement))
      const behind = yield* Effect.exit(run(Effect.andThen(last(insert(3)), insert(4))))
      assert.isTrue(hasDied(behind, TransactionEnded))
      const behindFailed = yield* Effect.exit(run(Effect.andThen(Effect.exit(last(insert(0))), insert(5))))
      assert.isTrue(hasDied(behindFailed, TransactionEnded))
      assert.deepStrictEqual(yield* numbers, [1, 3])
    })
  )

  it.effect("code that fails behind it undoes nothing, and the commit is announced", () =>
    Effect.gen(function* () {
      const { last, numbers, packets, run } = yield* begin()
      const told: Array<string> = []
      const failing = Effect.andThen(Effect.andThen(telling(told), last(insert(1))), Effect.die("a mistake"))
      assert.strictEqual((yield* packets(Effect.exit(run(failing)))).length, 1)
      assert.deepStrictEqual(yield* numbers, [1])
      assert.deepStrictEqual(told, ["committed"])
    })
  )

  it.effect("in a savepoint it does not commit: what is around it may still fail", () =>
    Effect.gen(function* () {
      const { last, numbers, run } = yield* begin()
      const failing = Effect.andThen(run(last(insert(1))), Effect.fail("refused"))
      yield* Effect.exit(run(Effect.andThen(insert(2), failing)))
      assert.deepStrictEqual(yield* numbers, [])
      yield* run(Effect.andThen(run(last(insert(3))), insert(4)))
      assert.deepStrictEqual(yield* numbers, [3, 4])
    })
  )

  it.effect("outside of a transaction it is a defect", () =>
    Effect.gen(function* () {
      const { last, numbers } = yield* begin()
      const alone = last(insert(1)) as Effect.Effect<unknown>
      assert.isTrue(Exit.isFailure(yield* Effect.exit(alone)))
      assert.deepStrictEqual(yield* numbers, [])
    })
  )

  it.effect("an interruption waits for its answer, and for what follows a commit", () =>
    Effect.gen(function* () {
      const { last, numbers, others, run } = yield* begin()
      const told: Array<string> = []
      const slow = Transaction.use(({ sql }) => sql`INSERT INTO numbers SELECT 1 FROM pg_sleep(0.3)`)
      const running = yield* Effect.forkChild(run(Effect.andThen(telling(told), last(slow))))
      yield* eventually(
        "the statement to run",
        Effect.map(
          others`SELECT FROM pg_stat_activity WHERE query LIKE '%pg_sleep(0.3)%' AND pid <> pg_backend_pid()`,
          (found) => found.length > 0
        )
      )
      yield* Fiber.interrupt(running)
      assert.deepStrictEqual(yield* numbers, [1])
      assert.deepStrictEqual(told, ["committed"])
    })
  )

  it.effect("a socket that promises nothing: COMMIT is a statement of its own", () =>
    Effect.gen(function* () {
      const { last, numbers, packets, run } = yield* begin(() => {})
      const written = yield* packets(run(Effect.andThen(insert(1), last(insert(2)))))
      // BEGIN, a statement, the announcement, a statement, COMMIT.
      assert.strictEqual(written.length, 5)
      assert.include(written[2], SingleStatement.announcement)
      assert.deepStrictEqual(yield* numbers, [1, 2])
    })
  )

  it.effect("without joined sockets, and where faults may be injected, nothing is announced", () =>
    Effect.gen(function* () {
      const { client, numbers, packets, run } = yield* begin()
      const faults = { ...(yield* Faults) }
      const plain = yield* SingleStatement.last(client).pipe(Effect.provideService(SingleStatement.JoinedCommit, false))
      const injected = yield* SingleStatement.last(client).pipe(
        Effect.provideService(SingleStatement.JoinedCommit, true),
        Effect.provideService(Faults, faults)
      )
      for (const [index, last] of [plain, injected].entries()) {
        const first = 2 * index + 1
        const written = yield* packets(run(Effect.andThen(insert(first), last(insert(first + 1)))))
        assert.strictEqual(written.length, 3)
        assert.isTrue(hasDied(yield* Effect.exit(run(Effect.andThen(last(insert(9)), insert(9)))), TransactionEnded))
      }
      assert.deepStrictEqual(yield* numbers, [1, 2, 3, 4])
    })
  )
})

/** A fake idle socket. It records its writes, the data that the driver gets, and other calls. */
const fakeSocket = () => {
  const written: Array<Buffer> = []
  const handed: Array<Buffer> = []
  const done: Array<string> = []
  const socket = {
    timeout: 1_000,
    write: (chunk: Buffer) => written.push(chunk) > 0,
    push: (chunk: Buffer | null) => handed.push(chunk ?? Buffer.alloc(0)) > 0,
    setTimeout: (millis: number) => done.push(`timeout ${millis}`),
    destroy: () => done.push("destroyed")
  }
  JoinedCommit.install(socket as unknown as Net.Socket)
  socket.push(Messages.message("Z", "I"))
  handed.length = 0
  return { socket, written, handed, done }
}

const { message } = Messages
const announcement = Messages.framesOf(SingleStatement.announcement).asked
const beginFrame = Messages.framesOf("BEGIN").asked
const statement = Buffer.concat([message("B", "statement"), message("E", "0000"), message("S")])

const begun = [message("1"), message("2"), message("C", "BEGIN\0")]
const answered = [
  message("1"),
  message("2"),
  message("T", "columns"),
  message("D", "row"),
  message("C", "INSERT 0 1\0")
]
const committed = [message("1"), message("2"), message("C", "COMMIT\0")]
// Parsed from a wrong position, it has negative lengths.
const notice = message("N", "SHÄÄÄÄÄÄÄÄÄNGT\0\0")
const refused = message("E", "SERROR\0\0")
const idle = message("Z", "I")
const failed = message("Z", "E")

it("however its answer is cut into packets, the driver gets exactly the statement's answer", () => {
  const cases = [
    { answer: [...begun, ...answered, ...committed, idle], expected: [...answered, idle] },
    {
      answer: [notice, ...begun, ...answered, notice, ...committed, notice, idle],
      expected: [notice, ...answered, notice, notice, idle]
    },
    {
      answer: [...begun, ...answered, message("1"), message("2"), refused, idle],
      expected: [...answered, refused, idle]
    },
    { answer: [...begun, message("1"), refused, failed], expected: [message("1"), refused, failed] },
    { answer: [refused, idle], expected: [refused, idle] }
  ]
  for (const { answer, expected } of cases) {
    const bytes = Buffer.concat(answer)
    for (let first = 1; first < bytes.length; first++) {
      for (let second = first; second < bytes.length; second++) {
        const { handed, socket, written } = fakeSocket()
        socket.write(beginFrame)
        socket.write(announcement)
        assert.deepStrictEqual([written.length, handed.length], [0, 2], "answered at once")
        socket.write(statement)
        assert.strictEqual(written.length, 1)
        for (const part of [bytes.subarray(0, first), bytes.subarray(first, second), bytes.subarray(second)]) {
          if (part.length > 0) socket.push(part)
        }
        assert.deepStrictEqual(Buffer.concat(handed.slice(2)), Buffer.concat(expected))
        assert.isTrue(handed.every(({ length }) => length > 0))
        // Later data passes unchanged, even where it looks like such an answer.
        socket.push(Buffer.concat(committed))
        assert.deepStrictEqual(handed.at(-1), Buffer.concat(committed))
      }
    }
  }
})

it("only the packet after an announcement has a COMMIT, in front of its Sync", () => {
  const { socket, written } = fakeSocket()
  socket.write(announcement)
  socket.write(statement)
  socket.push(Buffer.concat([...answered, ...committed, idle]))
  socket.write(statement)
  const commit = Messages.framesOf("COMMIT").bare
  assert.deepStrictEqual(written, [Buffer.concat([statement.subarray(0, -5), commit, message("S")]), statement])
})

it("half a message that came before makes the announcement go out: its answer must not split the message", () => {
  for (let cut = 1; cut < notice.length; cut++) {
    const { handed, socket, written } = fakeSocket()
    socket.push(notice.subarray(0, cut))
    socket.write(announcement)
    socket.write(statement)
    assert.deepStrictEqual(written, [announcement, statement])
    assert.deepStrictEqual(handed, [notice.subarray(0, cut)])
  }
})

it("a packet that does not end with a Sync closes the connection: nobody could tell where its COMMIT belongs", () => {
  const { done, socket, written } = fakeSocket()
  socket.write(announcement)
  socket.write(statement.subarray(0, -1))
  assert.deepStrictEqual([written.length, done], [0, ["timeout 1000", "destroyed"]])
})
