/** The contract of a mail transport. A send fails in three ways, and each is handled differently: refused, unavailable, outcome unknown. */
import { Context, type Effect, Schema } from "effect"
import { shortText } from "../../domain/Text.ts"

/**
 * An address that needs no quoting: letters, digits and `. _ + -`, at a host name. It can't carry a line break, a comma or a second
 * address into a header or an SMTP command.
 */
export const EmailAddress = Schema.String.check(
  Schema.makeFilter(
    (text: string) => (text.length <= 254 && addressPattern.test(text)) || "must be an address as name@host.example"
  )
).pipe(Schema.brand("EmailAddress"))
export type EmailAddress = typeof EmailAddress.Type

/** RFC 5321, section 4.5.3.1: up to 64 octets in front of the @. */
const addressPattern = /^(?=[^@]{1,64}@)[A-Za-z0-9]+(?:[._+-]+[A-Za-z0-9]+)*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*$/

/** One line of at most 200 characters: a control character could end the header. */
export const Subject = shortText(200).check(
  Schema.makeFilter((text: string) => !/\p{Cc}/u.test(text) || "must not contain control characters")
)

/** A mail as it is sent. */
export interface Mail {
  /** Its identity, without `<` and `>`. It is the same in each send of a mail, so that a receiver can recognise a copy. */
  readonly messageId: string
  readonly to: EmailAddress
  readonly subject: string
  readonly text: string
}

/** The server will never take this mail: the recipient or the content is refused. */
export class MailRefused extends Schema.TaggedError<MailRefused>()("MailRefused", { reason: Schema.String }) {
  override get message() {
    return `the mail server refused the mail: ${this.reason}`
  }
}

/** The mail was certainly not taken: no server answered, or the server is busy, refuses our login, or says "later". */
export class MailUnavailable extends Schema.TaggedError<MailUnavailable>()("MailUnavailable", {
  reason: Schema.String
}) {
  override get message() {
    return `the mail was not taken: ${this.reason}`
  }
}

/** The server did not answer after the mail had been sent: it may have taken the mail or not. */
export class MailOutcomeUnknown extends Schema.TaggedError<MailOutcomeUnknown>()("MailOutcomeUnknown", {
  reason: Schema.String
}) {
  override get message() {
    return `the mail may have been taken, or not: ${this.reason}`
  }
}

export type MailError = MailRefused | MailUnavailable | MailOutcomeUnknown

/** Sender, receivers and timeout. */
export const MailSettings = Context.Reference<{
  /** The sender of every mail; its host is also the right side of each Message-ID. */
  readonly from: EmailAddress
  /** The host of the customers' addresses, which are made of their ids. */
  readonly customerHost: string
  /** From the connection attempt to the server's last reply. Below the task's timeout, so that the outcome can be stored. */
  readonly sendTimeoutMillis: number
}>("paid-once/application/mail/MailSettings", {
  // `.example` is reserved (RFC 2606): a misdirected mail reaches no stranger.
  defaultValue: () => ({
    from: EmailAddress.make("shop@paid-once.example"),
    customerHost: "customers.example",
    sendTimeoutMillis: 30_000
  })
})

export class MailTransport extends Context.Service<
  MailTransport,
  {
    /** Hands the mail over. Succeeds once the receiving side has accepted it. An interruption closes the connection. */
    readonly send: (mail: Mail) => Effect.Effect<void, MailError>
  }
>()("paid-once/application/mail/MailTransport") {}
