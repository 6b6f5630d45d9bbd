/** BEGIN in one packet with the statement after it, against Postgres and against every way in which its answer may be cut. */
import { PgConnection } from "@effect/sql-pg"
import { assert, it, layer } from "@effect/vitest"
import { Effect, Exit, Redacted } from "effect"
import { EventEmitter } from "node:events"
import * as Net from "node:net"
import * as DeferredBegin from "../../src/platform/database/DeferredBegin.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const message = (type: string, body: ReadonlyArray<number> | string = "") => {
  const bytes = Buffer.from(body as string)
  const length = Buffer.alloc(4)
  length.writeInt32BE(4 + bytes.length)
  return Buffer.concat([Buffer.from(type), length, bytes])
}

/** A connection, and what is written to its socket. */
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
  const begin = connection.query(DeferredBegin.deferrableBegin, [], false)
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
  it.effect("a transaction of one statement is two packets, and its first has the BEGIN", () =>
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

  it.effect("it is a transaction: what it wrote is gone after a ROLLBACK", () =>
    Effect.gen(function* () {
      const { begin, connection } = yield* connect
      yield* connection.query("CREATE TEMPORARY TABLE numbers (n integer)")
      yield* Effect.all([begin, connection.query("INSERT INTO numbers VALUES (1)"), connection.query("ROLLBACK")])
      yield* Effect.all([begin, connection.query("ROLLBACK")])
      yield* Effect.all([begin, connection.query("INSERT INTO numbers VALUES (2)"), connection.query("COMMIT")])
      assert.deepStrictEqual((yield* connection.query("SELECT n FROM numbers")).rows, [{ n: 2 }])
    })
  )

  it.effect("a first statement that fails is a failed transaction, and the connection goes on", () =>
    Effect.gen(function* () {
      const { begin, connection } = yield* connect
      yield* begin
      assert.isTrue(Exit.isFailure(yield* Effect.exit(connection.query("SELECT 1 / 0"))))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(connection.query("SELECT 1"))), "the transaction has failed")
      assert.strictEqual((yield* connection.query("COMMIT")).command, "ROLLBACK")
      assert.deepStrictEqual((yield* connection.query("SELECT 1 AS one")).rows, [{ one: 1 }])
    })
  )

  it.effect("a BEGIN that Postgres refuses fails its statement, which is not run, and the connection goes on", () =>
    Effect.gen(function* () {
      const { begin, connection, packets } = yield* connect
      yield* connection.query("CREATE TEMPORARY TABLE numbers (n integer)")
      // In a failed transaction nothing but its end is taken.
      yield* begin
      yield* Effect.exit(connection.query("SELECT 1 / 0"))
      yield* begin
      const exit = yield* Effect.exit(connection.query("INSERT INTO numbers VALUES (1)"))
      assert.isTrue(Exit.isFailure(exit) && String(exit.cause).includes("aborted"))
      yield* connection.query("ROLLBACK")
      const written = yield* packets(Effect.all([begin, connection.query("SELECT n FROM numbers")]))
      assert.strictEqual(written.length, 1)
      assert.deepStrictEqual((yield* connection.query("COMMIT")).command, "COMMIT")
      assert.deepStrictEqual((yield* connection.query("SELECT n FROM numbers")).rows, [])
    })
  )

  it.effect("a BEGIN of another kind is sent as it is", () =>
    Effect.gen(function* () {
      const { connection, packets } = yield* connect
      const written = yield* packets(connection.query("BEGIN ISOLATION LEVEL SERIALIZABLE", [], false))
      assert.strictEqual(written.length, 1)
      yield* connection.query("ROLLBACK")
    })
  )
})

/** A socket without a network: what is written to it, and what it hands to the driver. */
const fakeSocket = () => {
  const written: Array<Buffer> = []
  const handed: Array<Buffer> = []
  const socket = Object.assign(new EventEmitter(), {
    write: (chunk: Buffer) => written.push(chunk) > 0,
    push: (chunk: Buffer | null) => handed.push(chunk ?? Buffer.alloc(0)) > 0
  })
  DeferredBegin.install(socket as unknown as Net.Socket)
  return { socket, written, handed }
}

/** As the driver writes it, whose bytes the tests above have seen taken. */
const beginFrame = Buffer.concat([
  message("P", "\0BEGIN\0\0\0"),
  message("B", [0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1]),
  message("D", "P\0"),
  message("E", [0, 0, 0, 0, 0]),
  message("S")
])

it("however its answer is cut, and whatever comes between, the driver gets what is the statement's", () => {
  const begun = [message("1"), message("2"), message("C", "BEGIN\0")]
  const statements = [message("2"), message("D", "row"), message("C", "SELECT 1\0"), message("Z", "T")]
  const notice = message("N", "SNOTICE\0\0")
  const setting = message("S", "TimeZone\0UTC\0")
  const refused = [message("E", "SERROR\0\0"), message("Z", "E")]
  const cases = [
    { answer: [...begun, ...statements], expected: statements },
    {
      answer: [notice, begun[0]!, setting, ...begun.slice(1), ...statements],
      expected: [notice, setting, ...statements]
    },
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
        socket.write(message("Q", "statement"))
        assert.strictEqual(written.length, 1)
        for (const part of [bytes.subarray(0, first), bytes.subarray(first, second), bytes.subarray(second)]) {
          if (part.length > 0) socket.push(part)
        }
        assert.deepStrictEqual(Buffer.concat(handed.slice(1)), Buffer.concat(expected))
        assert.isTrue(handed.every(({ length }) => length > 0))
        // All that comes later passes, also what looks like it.
        socket.push(begun[0]!)
        assert.deepStrictEqual(handed.at(-1), begun[0])
      }
    }
  }
})
