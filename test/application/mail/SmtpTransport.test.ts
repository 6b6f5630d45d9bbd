import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Redacted } from "effect"
import { createServer, type AddressInfo } from "node:net"
import { EmailAddress, MailSettings, MailTransport } from "../../../src/application/mail/MailTransport.ts"
import * as SmtpTransport from "../../../src/application/mail/SmtpTransport.ts"
import { eventually } from "../../support/Counters.ts"
import * as MailServer from "../../support/MailServer.ts"

const mail = {
  messageId: "01890a5d-ac96-774b-bcce-b302099a8057@paid-once.example",
  to: EmailAddress.make("ada@customers.example"),
  subject: "Receipt for order 7: 5 € & more",
  text: "Thank you.\r\n.\nA line that is a dot must not end the mail.\n"
}

const transport = (url: string, sendTimeoutMillis = 10_000) =>
  SmtpTransport.layer(Redacted.make(url)).pipe(
    Layer.provide(
      Layer.effect(
        MailSettings,
        Effect.map(MailSettings, (settings) => ({ ...settings, sendTimeoutMillis }))
      )
    )
  )

const sendTo = (url: string, sendTimeoutMillis?: number) =>
  Effect.provide(
    Effect.flatMap(MailTransport, ({ send }) => send(mail)),
    transport(url, sendTimeoutMillis)
  )

it.live("a mail arrives as it was written, with its Message-ID, and once", () =>
  Effect.gen(function* () {
    const server = yield* MailServer.make()
    yield* sendTo(`smtp://127.0.0.1:${server.port}`)
    assert.strictEqual(server.taken.length, 1)
    const [{ from, source, to }] = server.taken as [MailServer.Taken]
    assert.deepStrictEqual([from, ...to], ["shop@paid-once.example", "ada@customers.example"])
    assert.strictEqual(MailServer.header(source, "Message-ID"), `<${mail.messageId}>`)
    assert.strictEqual(MailServer.header(source, "To"), mail.to)
    assert.match(MailServer.header(source, "Subject") ?? "", /^=\?UTF-8\?/i)
    assert.include(source, "\r\n.\r\nA line that is a dot must not end the mail.")
  }).pipe(Effect.scoped)
)

it.live("a login is sent where the server requires one; a wrong login makes the mail unavailable, not refused", () =>
  Effect.gen(function* () {
    const server = yield* MailServer.make({ login: { user: "shop", password: "a/b:c@d" } })
    yield* sendTo(`smtp://shop:${encodeURIComponent("a/b:c@d")}@127.0.0.1:${server.port}`)
    assert.strictEqual(server.taken.length, 1)
    const error = yield* Effect.flip(sendTo(`smtp://shop:secret@127.0.0.1:${server.port}`))
    assert.strictEqual(error._tag, "MailUnavailable")
    assert.notInclude(error.message, "secret")
  }).pipe(Effect.scoped)
)

for (const [what, behaviour, tag] of [
  ["a recipient that does not exist (550)", { recipient: 550 }, "MailRefused"],
  ["a message that is not wanted (554)", { message: 554 }, "MailRefused"],
  ["a recipient for whom it is too early (450)", { recipient: 450 }, "MailUnavailable"],
  ["a message for which there is no room now (452)", { message: 452 }, "MailUnavailable"],
  ["a sender that it does not like (550)", { sender: 550 }, "MailUnavailable"],
  ["no reply to the recipient", { recipient: "silence" }, "MailUnavailable"],
  ["no reply to the message", { message: "silence" }, "MailOutcomeUnknown"],
  ["a connection that breaks after the message", { message: "cut" }, "MailOutcomeUnknown"]
] as const) {
  it.live(`${what} is ${tag}`, () =>
    Effect.gen(function* () {
      const server = yield* MailServer.make()
      server.behave(behaviour)
      // A reply that never comes is waited for, and the server must have the mail by then.
      const isSilent = Object.values(behaviour).includes("silence")
      const error = yield* Effect.flip(sendTo(`smtp://127.0.0.1:${server.port}`, isSilent ? 2_000 : undefined))
      assert.strictEqual(error._tag, tag)
    }).pipe(Effect.scoped)
  )
}

it.live("without a server, or with a silent one, the mail is unavailable", () =>
  Effect.gen(function* () {
    const server = yield* MailServer.make()
    yield* server.stop
    const down = yield* Effect.flip(sendTo(`smtp://127.0.0.1:${server.port}`))
    assert.strictEqual(down._tag, "MailUnavailable")
    const mute = yield* listener(() => undefined)
    const silent = yield* Effect.flip(sendTo(`smtp://127.0.0.1:${mute.port}`, 300))
    assert.strictEqual(silent._tag, "MailUnavailable")
  }).pipe(Effect.scoped)
)

it.live("an interrupted send closes its connection", () =>
  Effect.gen(function* () {
    let open = 0
    const mute = yield* listener((socket) => {
      open += 1
      socket.on("close", () => (open -= 1))
      socket.resume()
    })
    const sending = yield* Effect.forkChild(sendTo(`smtp://127.0.0.1:${mute.port}`))
    yield* eventually(
      "the connection",
      Effect.sync(() => open === 1)
    )
    yield* Fiber.interrupt(sending)
    yield* eventually(
      "its end",
      Effect.sync(() => open === 0)
    )
  }).pipe(Effect.scoped)
)

/** A port that accepts connections and does not speak SMTP. */
const listener = (accept: Parameters<typeof createServer>[1] & {}) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly port: number; readonly close: () => void }>((resume) => {
      const sockets = new Set<{ destroy: () => unknown }>()
      const server = createServer((socket) => {
        sockets.add(socket)
        socket.on("error", () => undefined)
        accept(socket)
      })
      server.listen(0, "127.0.0.1", () => {
        resume(
          Effect.succeed({
            port: (server.address() as AddressInfo).port,
            close: () => {
              for (const socket of sockets) socket.destroy()
              server.close()
            }
          })
        )
      })
    }),
    ({ close }) => Effect.sync(close)
  )

it.live("a reply that no column can hold is made presentable, and cut", () =>
  Effect.gen(function* () {
    const server = yield* Effect.acquireRelease(
      Effect.callback<ReturnType<typeof createServer>>((resume) => {
        const made = createServer((socket) => {
          socket.on("error", () => undefined)
          socket.write("220 ready\r\n")
          socket.on("data", (chunk: Buffer) => {
            const isRecipient = chunk.toString().startsWith("RCPT")
            socket.write(isRecipient ? `550 no\u0000body\u001b[31m ${"x".repeat(100_000)}\r\n` : "250 fine\r\n")
          })
        }).listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
      }),
      (made) => Effect.sync(() => made.close())
    )
    const error = yield* Effect.flip(sendTo(`smtp://127.0.0.1:${(server.address() as AddressInfo).port}`))
    assert.strictEqual(error._tag, "MailRefused")
    assert.strictEqual(error.reason.length, 500)
    // oxlint-disable-next-line no-control-regex -- these are what must not be there
    assert.notMatch(error.reason, /[\u0000-\u001f]/)
    assert.include(error.reason, "no�body�[31m xxx")
  }).pipe(Effect.scoped)
)
