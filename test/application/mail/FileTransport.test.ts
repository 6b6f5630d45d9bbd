import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import { chmod, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises"
import * as Path from "node:path"
import { Schema } from "effect"
import { addressOf } from "../../../src/application/mail/CustomerAddress.ts"
import * as FileTransport from "../../../src/application/mail/FileTransport.ts"
import { EmailAddress, MailTransport, Subject } from "../../../src/application/mail/MailTransport.ts"
import { CustomerId } from "../../../src/domain/Ids.ts"
import { header } from "../../support/MailServer.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"

it.live("without a server a mail is a file; sent twice it is one file", () =>
  Effect.gen(function* () {
    const directory = Path.join(yield* TestDatabase.dataDirectory, "mail")
    const send = Effect.flatMap(MailTransport, (transport) =>
      transport.send({
        messageId: "7@shop.example",
        to: EmailAddress.make("ada@customers.example"),
        subject: "A mail",
        text: "Hi"
      })
    ).pipe(Effect.provide(FileTransport.layer(directory)))
    yield* send
    yield* send
    const names = yield* Effect.promise(() => readdir(directory))
    assert.deepStrictEqual(names, ["7@shop.example.eml"])
    const source = yield* Effect.promise(() => readFile(Path.join(directory, names[0]!), "utf8"))
    assert.strictEqual(header(source, "Message-ID"), "<7@shop.example>")
    assert.strictEqual(header(source, "To"), "ada@customers.example")
  }).pipe(Effect.scoped)
)

it.live("a mail can be read by its user alone, also where an earlier version let everybody in", () =>
  Effect.gen(function* () {
    const directory = Path.join(yield* TestDatabase.dataDirectory, "mail")
    const left = Path.join(directory, "7.eml.part")
    yield* Effect.promise(async () => {
      await mkdir(directory)
      await writeFile(left, "half a mail")
      // Not by the umask, which may be any.
      await chmod(directory, 0o755)
      await chmod(left, 0o644)
    })
    yield* MailTransport.use((transport) =>
      transport.send({ messageId: "7", to: EmailAddress.make("a@b.example"), subject: "s", text: "t" })
    ).pipe(Effect.provide(FileTransport.layer(directory)))
    const modes = yield* Effect.promise(async () =>
      Promise.all([directory, Path.join(directory, "7.eml")].map(async (path) => (await stat(path)).mode & 0o777))
    )
    assert.deepStrictEqual(modes, [0o700, 0o600])
  }).pipe(Effect.scoped)
)

it.live("a link in the place of the directory or of a file, or a pipe, is refused and not followed", () =>
  Effect.gen(function* () {
    const own = yield* TestDatabase.dataDirectory
    const [directory, target, part] = [
      Path.join(own, "mail"),
      Path.join(own, "target"),
      Path.join(own, "mail/7.eml.part")
    ]
    yield* Effect.promise(async () => {
      await mkdir(target)
      await chmod(target, 0o755)
      await symlink(target, directory)
    })
    const send = MailTransport.use((transport) =>
      transport.send({ messageId: "7", to: EmailAddress.make("a@b.example"), subject: "s", text: "t" })
    ).pipe(Effect.provide(FileTransport.layer(directory)))
    assert.include((yield* Effect.flip(send)).message, `${directory} is not a directory of this user: remove it`)
    assert.deepStrictEqual(yield* Effect.promise(() => readdir(target)), [])
    assert.strictEqual((yield* Effect.promise(() => stat(target))).mode & 0o777, 0o755)
    const file = Path.join(target, "kept")
    yield* Effect.promise(async () => {
      await rm(directory)
      await mkdir(directory)
      await writeFile(file, "kept")
      await symlink(file, part)
    })
    assert.strictEqual((yield* Effect.flip(send))._tag, "MailUnavailable")
    assert.strictEqual(yield* Effect.promise(() => readFile(file, "utf8")), "kept")
    yield* Effect.promise(async () => {
      await rm(part)
      execFileSync("mkfifo", [part])
    })
    // Without a reader an open for writing would wait for ever.
    assert.strictEqual((yield* Effect.flip(send))._tag, "MailUnavailable")
  }).pipe(Effect.scoped)
)

it.live("a directory without write permission makes the mail unavailable, to be retried", () =>
  Effect.gen(function* () {
    const file = Path.join(yield* TestDatabase.dataDirectory, "a-file")
    yield* Effect.promise(() => writeFile(file, ""))
    const error = yield* Effect.flip(
      Effect.flatMap(MailTransport, (transport) =>
        transport.send({ messageId: "7", to: EmailAddress.make("a@b.example"), subject: "s", text: "t" })
      ).pipe(Effect.provide(FileTransport.layer(Path.join(file, "mail"))))
    )
    assert.strictEqual(error._tag, "MailUnavailable")
  }).pipe(Effect.scoped)
)

it.effect("each customer id has an address of its own, without characters that have a meaning to a mail server", () =>
  Effect.gen(function* () {
    const ids = [
      "ada",
      "Ada",
      "ada+x",
      "ada.",
      "ada@evil.example",
      "ada, bob@evil.example",
      "ada\r\nBcc: bob@evil.example",
      "ada> SIZE=1",
      '"ada"',
      "id_0",
      "ädä",
      "a".repeat(200)
    ]
    const addresses = yield* Effect.forEach(ids, (id) => addressOf(CustomerId.make(id)))
    assert.strictEqual(addresses[0], "ada@customers.example")
    assert.strictEqual(new Set(addresses).size, ids.length)
    for (const address of addresses) assert.match(address, /^[a-z0-9_]{1,64}@customers\.example$/)
  })
)

it("an address or a subject with a line break is refused", () => {
  for (const address of [
    "a\r\nBcc: b@c.example",
    "a@b.example\n",
    "a b@c.example",
    "<a@b.example>",
    "a,b@c.example",
    "a@b@c.example",
    "@b.example"
  ]) {
    assert.isFalse(Schema.is(EmailAddress)(address), address)
  }
  for (const subject of ["a\r\nBcc: b@c.example", "a\nb", "a\u0085b", ""]) assert.isFalse(Schema.is(Subject)(subject))
  assert.isTrue(Schema.is(EmailAddress)("first.last+tag@mail-1.example"))
})
