/** A server that is not ours gets no password: played on real sockets, by TCP and by a Unix socket. */
import { PgConnection } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect, Exit, Redacted } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { type AddressInfo, createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Sockets from "../../src/postgres/tls/Sockets.ts"

const password = "a-password-that-nobody-may-see"

const message = (type: string, body: Buffer) => {
  const length = Buffer.alloc(4)
  length.writeInt32BE(length.length + body.length)
  return Buffer.concat([Buffer.from(type), length, body])
}
const authentication = (code: number, rest = "") => {
  const head = Buffer.alloc(4)
  head.writeInt32BE(code)
  return message("R", Buffer.concat([head, Buffer.from(rest)]))
}
const ready = message("Z", Buffer.from("I"))

/** What a server says that was found at the address of ours, and how it comes. */
const servers: ReadonlyArray<readonly [name: string, answer: Buffer]> = [
  ["that asks for the password in clear text", authentication(3)],
  ["that asks for its MD5 hash", authentication(5, "salt")],
  ["that asks for nothing", Buffer.concat([authentication(0), ready])],
  ["that asks for Kerberos", authentication(7)],
  [
    "that begins SCRAM and then asks in clear text",
    Buffer.concat([authentication(10, "SCRAM-SHA-256\0\0"), authentication(3)])
  ],
  [
    "that begins SCRAM and proves nothing",
    Buffer.concat([authentication(10, "SCRAM-SHA-256\0\0"), authentication(0), ready])
  ]
]

/** Listens, answers the first message with `answer`, and keeps all that it gets. */
const fake = (answer: Buffer, path?: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const heard: Array<Buffer> = []
      const server = createServer((socket) => {
        socket.once("data", () => {
          // In two parts, as a network may deliver it.
          socket.write(answer.subarray(0, 3))
          setImmediate(() => socket.write(answer.subarray(3)))
        })
        socket.on("data", (chunk) => heard.push(chunk)).on("error", () => {})
      })
      await new Promise<void>((resolve) => {
        if (path === undefined) server.listen(0, "127.0.0.1", resolve)
        else server.listen(path, resolve)
      })
      return { server, heard: () => Buffer.concat(heard) }
    }),
    ({ server }) => Effect.sync(() => server.close())
  )

const connect = (host: string) =>
  Effect.scoped(
    PgConnection.make({
      ...Sockets.over(() => {})(
        Redacted.make(`postgres://user:${password}@${host}/db?sslmode=disable&require_auth=scram-sha-256`)
      ),
      connectTimeout: "5 seconds"
    })
  ).pipe(Effect.exit)

const assertRefused = (exit: Exit.Exit<unknown, unknown>, heard: Buffer) => {
  assert.isTrue(Exit.isFailure(exit))
  assert.include(Exit.isFailure(exit) ? Cause.pretty(exit.cause) : "", "this is not our Postgres server")
  assert.notInclude(heard.toString(), password)
  // A PasswordMessage has the type of a SASL response: only that of SCRAM's first step may be there, which carries no password.
  assert.notMatch(heard.toString(), /p.{4}md5/s)
}

describe("a connection that requires SCRAM", () => {
  for (const [name, answer] of servers) {
    it.live(`gives nothing to a server ${name}`, () =>
      Effect.gen(function* () {
        const { heard, server } = yield* fake(answer)
        assertRefused(yield* connect(`127.0.0.1:${(server.address() as AddressInfo).port}`), heard())
      }).pipe(Effect.scoped)
    )
  }

  it.live("is as careful on a Unix socket", () =>
    Effect.gen(function* () {
      const directory = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "scram-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true }))
      )
      const { heard } = yield* fake(authentication(3), join(directory, ".s.PGSQL.5432"))
      assertRefused(yield* connect(encodeURIComponent(directory)), heard())
    }).pipe(Effect.scoped)
  )
})
