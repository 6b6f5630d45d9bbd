/**
 * Mail without a mail server: each mail is a file that any mail program opens.
 *
 * The file's name is the mail's id, so a mail that is sent twice is one file. A file appears whole or not at all. Mail is nobody else's
 * business: the directory and its files are for this user alone.
 */
import { Effect, Layer } from "effect"
import { constants } from "node:fs"
import { chmod, lstat, mkdir, open, rename } from "node:fs/promises"
import * as Path from "node:path"
import { MailTransport, MailUnavailable } from "./MailTransport.ts"
import { compose } from "./MimeMessage.ts"

/** A file is made or cut off. A link there is not followed, and a pipe without a reader is not waited for. */
const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_NOFOLLOW | constants.O_NONBLOCK

/** Puts mail into `directory`, as `<message id>.eml`. */
export const layer = (directory: string): Layer.Layer<MailTransport> =>
  Layer.succeed(MailTransport, {
    send: Effect.fn("FileTransport.send")(function* (mail) {
      const bytes = yield* compose(mail)
      const path = Path.join(directory, `${mail.messageId.replaceAll(/[^A-Za-z0-9@._-]/g, "_")}.eml`)
      yield* Effect.tryPromise({
        try: async () => {
          await mkdir(directory, { recursive: true, mode: 0o700 })
          // With a link there, root would close any directory to others and fill it.
          const found = await lstat(directory)
          if (!found.isDirectory() || found.uid !== (process.getuid?.() ?? found.uid)) {
            throw new Error(`${directory} is not a directory of this user: remove it`)
          }
          // It may be there already, from a version that let everybody in.
          await chmod(directory, 0o700)
          const file = await open(`${path}.part`, flags, 0o600)
          try {
            // What a crash has left keeps its mode.
            await file.chmod(0o600)
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
