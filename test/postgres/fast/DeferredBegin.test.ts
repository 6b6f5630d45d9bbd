/** BEGIN in one packet with the statement after it: against Postgres, and with its answer cut at every position. */
import { PgConnection } from "@effect/sql-pg"
import { assert, it, layer } from "@effect/vitest"
import { Effect, Exit, Redacted } from "effect"
import * as Net from "node:net"
import { beginStatement } from "../../../src/platform/TransactionControl.ts"
import * as DeferredBegin from "../../../src/postgres/fast/DeferredBegin.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"

const message = (type: string, body: ReadonlyArray<number> | string = "") => {
  const bytes = Buffer.from(body as string)
  const length = Buffer.alloc(4)
  length.writeInt32BE(4 + bytes.length)
  return Buffer.concat([Buffer.from(type), length, bytes])
}

/** A connection, and the packets that it writes. */
const connect = Effect.gen(function* () {
  const { url } = yield* TestDatabase
  const { hostname, port } = new URL(Redacted.value(url))
  const written: Array<Buffer> = []
  const connection = yield* PgConnection.make({
    url,
    stream: () => {
      const socket = Net.connect({ host: hostname, port: Number(port), noDelay: true })
      const write = socket.write.bind(socket)
      socket.write = (chunk: Uint8Array, ...rest: ReadonlyArray<never>) => {
        written.push(Buffer.from(chunk))
        return write(chunk, ...rest)
      }
      DeferredBegin.install(socket)
      return socket
    }
  })
  const begin = connection.query(beginStatement, [], false)
  /** The packets that `effect` writes. */
  const packets = <A, E>(effect: Effect.Effect<A, E>) =>
    Effect.gen(function* () {
      const before = written.length
      yield* effect
      return written.slice(before).map((bytes) => bytes.toString("latin1"))
    })
  return { connection, begin, packets }
})

layer(TestDatabase.layer, { excludeTestServices: true })("DeferredBegin", (it) => {
  it.effect("a transaction of one statement takes two packets, and the first contains the BEGIN", () =>
    Effect.gen(function* () {
      const { begin, connection, packets } = yield* connect
      const transaction = Effect.all([begin, connection.query("SELECT 1 AS one"), connection.query("COMMIT")])
      for (let turn = 0; turn < 3; turn++) {
        const written = yield* packets(transaction)
        assert.strictEqual(written.length, 2)
        assert.include(written[0], "BEGIN")
        const [begun, selected, ended] = yield* transaction
        assert.deepStrictEqual([begun.command, selected.rows, ended.command], ["BEGIN", [{ one: 1 }], "COMMIT"])
      }
    })
  )

  it.effect("a ROLLBACK undoes what the transaction wrote", () =>
    Effect.gen(function* () {
      const { begin, connection } = yield* connect
      yield* connection.query("CREATE TEMPORARY TABLE numbers (n integer)")
      yield* Effect.all([begin, connection.query("INSERT INTO numbers VALUES (1)"), connection.query("ROLLBACK")])
      yield* Effect.all([begin, connection.query("ROLLBACK")])
      yield* Effect.all([begin, connection.query("INSERT INTO numbers VALUES (2)"), connection.query("COMMIT")])
      assert.deepStrictEqual((yield* connection.query("SELECT n FROM numbers")).rows, [{ n: 2 }])
    })
  )

  it.effect("a first statement that fails leaves a failed transaction and a usable connection", () =>
    Effect.gen(function* () {
      const { begin, connection } = yield* connect
      yield* begin
      assert.isTrue(Exit.isFailure(yield* Effect.exit(connection.query("SELECT 1 / 0"))))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(connection.query("SELECT 1"))), "the transaction has failed")
      assert.strictEqual((yield* connection.query("COMMIT")).command, "ROLLBACK")
      assert.deepStrictEqual((yield* connection.query("SELECT 1 AS one")).rows, [{ one: 1 }])
    })
  )

  it.effect("a BEGIN that Postgres refuses fails its statement, and neither that nor a later one is run", () =>
    Effect.gen(function* () {
      const { begin, connection } = yield* connect
      const other = (yield* connect).connection
      yield* other.query("CREATE TABLE numbers (n integer)")
      // In a failed transaction Postgres accepts only its end.
      yield* begin
      yield* Effect.exit(connection.query("SELECT 1 / 0"))
      yield* begin
      const first = yield* Effect.exit(connection.query("INSERT INTO numbers VALUES (1)"))
      assert.isTrue(Exit.isFailure(first) && String(first.cause).includes("aborted"))
      for (const statement of ["ROLLBACK", "INSERT INTO numbers VALUES (2)", "COMMIT"]) {
        const { reason } = yield* Effect.flip(connection.query(statement))
        assert.strictEqual(reason._tag, "ConnectionError")
      }
      assert.deepStrictEqual((yield* other.query("SELECT n FROM numbers")).rows, [])
    })
  )

  it.effect("a BEGIN with options is sent unchanged", () =>
    Effect.gen(function* () {
      const { connection, packets } = yield* connect
      const written = yield* packets(connection.query("BEGIN ISOLATION LEVEL SERIALIZABLE", [], false))
      assert.strictEqual(written.length, 1)
      yield* connection.query("ROLLBACK")
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
  DeferredBegin.install(socket as unknown as Net.Socket)
  socket.push(message("Z", "I"))
  handed.length = 0
  return { socket, written, handed, done }
}

/** The driver's own bytes: the tests above show that they are recognised. */
const beginFrame = Buffer.concat([
  message("P", "\0BEGIN\0\0\0"),
  message("B", [0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1]),
  message("D", "P\0"),
  message("E", [0, 0, 0, 0, 0]),
  message("S")
])
const statement = message("Q", "statement")

const begun = [message("1"), message("2"), message("C", "BEGIN\0")]
const answered = [message("2"), message("D", "row"), message("C", "SELECT 1\0"), message("Z", "T")]
// Parsed from a wrong position, it has negative lengths.
const notice = message("N", "SHÄÄÄÄÄÄÄÄÄNGT\0\0")
const refused = [message("E", "SERROR\0\0"), message("Z", "E")]

it("however its answer is cut into packets, the driver gets exactly the statement's answer", () => {
  const setting = message("S", "TimeZone\0UTC\0")
  const cases = [
    { answer: [...begun, ...answered], expected: answered },
    { answer: [notice, begun[0]!, setting, ...begun.slice(1), ...answered], expected: [notice, setting, ...answered] },
    { answer: [begun[0]!, ...refused], expected: refused },
    { answer: [...begun, ...refused], expected: refused }
  ]
  for (const { answer, expected } of cases) {
    const bytes = Buffer.concat(answer)
    for (let first = 1; first < bytes.length; first++) {
      for (let second = first; second < bytes.length; second++) {
        const { handed, socket, written } = fakeSocket()
        socket.write(beginFrame)
        assert.strictEqual(written.length, 0)
        assert.strictEqual(handed.length, 1, "answered at once")
        socket.write(statement)
        assert.strictEqual(written.length, 1)
        for (const part of [bytes.subarray(0, first), bytes.subarray(first, second), bytes.subarray(second)]) {
          if (part.length > 0) socket.push(part)
        }
        assert.deepStrictEqual(Buffer.concat(handed.slice(1)), Buffer.concat(expected))
        assert.isTrue(handed.every(({ length }) => length > 0))
        // Later data passes unchanged, even where it looks like such an answer.
        socket.push(begun[0]!)
        assert.deepStrictEqual(handed.at(-1), begun[0])
      }
    }
  }
})

it("half a message that came before BEGIN makes it go out at once: its answer must not split the message", () => {
  for (let cut = 1; cut < notice.length; cut++) {
    const { handed, socket, written } = fakeSocket()
    socket.push(notice.subarray(0, cut))
    socket.write(beginFrame)
    assert.deepStrictEqual(written, [beginFrame])
    assert.deepStrictEqual(handed, [notice.subarray(0, cut)])
  }
})

it("half a message that came while BEGIN waited is joined with its rest, and is no part of the answer", () => {
  for (let cut = 1; cut < notice.length; cut++) {
    const { handed, socket } = fakeSocket()
    socket.write(beginFrame)
    socket.push(notice.subarray(0, cut))
    socket.write(statement)
    socket.push(Buffer.concat([notice.subarray(cut), ...begun, ...answered]))
    assert.deepStrictEqual(Buffer.concat(handed.slice(1)), Buffer.concat([notice, ...answered]))
  }
})

it("after a refused BEGIN the next packet closes the connection instead", () => {
  const { done, socket, written } = fakeSocket()
  socket.write(beginFrame)
  socket.write(statement)
  socket.push(Buffer.concat(refused))
  done.length = 0
  socket.write(statement)
  assert.deepStrictEqual([written.length, done], [1, ["destroyed"]])
})

it("a BEGIN that waits restarts the socket's timeout as a packet does", () => {
  const { done, socket } = fakeSocket()
  socket.write(beginFrame)
  assert.deepStrictEqual(done, ["timeout 1000"])
})
