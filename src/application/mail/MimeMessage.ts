/** A mail as bytes (RFC 5322), which both transports carry. */
import { Clock, Effect } from "effect"
import MailComposer from "nodemailer/lib/mail-composer"
import { type Mail, MailSettings } from "./MailTransport.ts"

/** The message, with CRLF line ends. nodemailer encodes the headers, and fetches no file and no URL. */
export const compose = Effect.fnUntraced(function* (mail: Mail) {
  const { from } = yield* MailSettings
  const date = new Date(yield* Clock.currentTimeMillis)
  const { messageId, subject, text, to } = mail
  return yield* Effect.promise(() =>
    new MailComposer({
      from,
      to,
      subject,
      text,
      date,
      messageId: `<${messageId}>`,
      // RFC 3834: suppresses out-of-office replies.
      headers: { "Auto-Submitted": "auto-generated" },
      newline: "win",
      disableFileAccess: true,
      disableUrlAccess: true
    })
      .compile()
      .build()
  )
})
