/**
 * Mail without a mail server: each mail is a file that any mail program opens.
 *
 * The file's name is the mail's id, so a mail that is sent twice is one file. A file appears whole or not at all.
 */
import { Effect, Layer } from "effect"
import { mkdir, open, rename } from "node:fs/promises"
import * as Path from "node:path"
import { MailTransport, MailUnavailable } from "./MailTransport.ts"
import { compose } from "./MimeMessage.ts"

/** Puts mail into `directory`, as `<message id>.eml`. */
export const layer = (directory: string): Layer.Layer<MailTransport> =>
  Layer.succeed(MailTransport, {
    send: Effect.fn("FileTransport.send")(function* (mail) {
      const bytes = yield* compose(mail)
      const path = Path.join(directory, `${mail.messageId.replaceAll(/[^A-Za-z0-9@._-]/g, "_")}.eml`)
      yield* Effect.tryPromise({
        try: async () => {
          await mkdir(directory, { recursive: true })
          const file = await open(`${path}.part`, "w")
          try {
            await file.writeFile(bytes)
            // A mail that is reported as sent survives a crash of the machine.
            await file.sync()
          } finally {
            await file.close()
          }
          await rename(`${path}.part`, path)
        },
        catch: (cause) => new MailUnavailable({ reason: cause instanceof Error ? cause.message : String(cause) })
      })
    })
  })
