/**
 * Mail through a server, by nodemailer's SMTP connection: one connection for each mail.
 *
 * The moment of a failure decides. Before the message's first byte has left, the mail was not taken. After that, a missing reply means that
 * the outcome is unknown.
 */
import { Effect, Layer, Redacted } from "effect"
import { Readable } from "node:stream"
import { parseConnectionUrl } from "nodemailer/lib/shared"
import SMTPConnection from "nodemailer/lib/smtp-connection"
import { presentable } from "../../platform/StorableText.ts"
import {
  type Mail,
  type MailError,
  MailOutcomeUnknown,
  MailRefused,
  MailSettings,
  MailTransport,
  MailUnavailable
} from "./MailTransport.ts"
import { compose } from "./MimeMessage.ts"

/** The server's reply is a part of the reason: a few lines of another company's text, which is stored and logged. */
const maxReasonLength = 500

/** A failure as nodemailer reports it. */
interface SmtpError extends Error {
  readonly command?: string | undefined
  readonly responseCode?: number | undefined
  readonly permanent?: boolean | undefined
}

/**
 * A reply 5yz about the recipient or the message refuses the mail for good. A reply 5yz about the greeting, our login or our sender does not:
 * the mail can be sent once that is repaired. Without a reply, the outcome is unknown if the message had begun.
 */
const classify = (error: SmtpError, messageBegun: boolean): MailError => {
  const reason = presentable(error.message, maxReasonLength)
  if (error.responseCode === undefined) {
    return messageBegun ? new MailOutcomeUnknown({ reason }) : new MailUnavailable({ reason })
  }
  return error.permanent === true && (error.command === "RCPT TO" || error.command === "DATA")
    ? new MailRefused({ reason })
    : new MailUnavailable({ reason })
}

/** Mail through the server of `url` (`smtp://` or `smtps://`, with user and password where it asks for them). */
export const layer = (url: Redacted.Redacted): Layer.Layer<MailTransport> =>
  Layer.effect(
    MailTransport,
    Effect.gen(function* () {
      const { from, sendTimeoutMillis } = yield* MailSettings
      const { auth, ...server } = parseConnectionUrl(Redacted.value(url))

      const deliver = (mail: Mail, bytes: Uint8Array) => {
        /** Whether the server has asked for the message, and bytes of it may have left. */
        let begun = false
        return Effect.callback<void, MailError>((resume) => {
          const connection = new SMTPConnection({
            ...server,
            connectionTimeout: sendTimeoutMillis,
            greetingTimeout: sendTimeoutMillis,
            socketTimeout: sendTimeoutMillis,
            // Closes at once: nothing more is expected on the connection.
            socketCloseTimeout: 0
          })
          const end = (result: Effect.Effect<void, MailError>) => {
            connection.close()
            resume(result)
          }
          const fail = (error: SmtpError) => end(Effect.fail(classify(error, begun)))
          // nodemailer reads a stream only once the server has asked for the message.
          const message = new Readable({
            read() {
              begun = true
              this.push(bytes)
              this.push(null)
            }
          })
          const send = () =>
            connection.send({ from, to: [mail.to], size: bytes.length }, message, (error) =>
              error === null ? end(Effect.void) : fail(error)
            )
          connection.on("error", fail)
          connection.connect((error) => {
            if (error !== undefined) return fail(error)
            if (auth === undefined) return send()
            connection.login(auth, (refused) => (refused === null ? send() : fail(refused)))
          })
          return Effect.sync(() => connection.close())
        }).pipe(
          // A slow server can keep each single timeout from firing: this one bounds the whole send.
          Effect.timeoutOrElse({
            duration: sendTimeoutMillis,
            orElse: () => Effect.fail(classify(new Error(`no answer within ${sendTimeoutMillis} ms`), begun))
          })
        )
      }

      return MailTransport.of({
        send: Effect.fn("SmtpTransport.send")((mail) => Effect.flatMap(compose(mail), (bytes) => deliver(mail, bytes)))
      })
    })
  )
