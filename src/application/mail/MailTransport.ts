/** How a mail leaves the house, whoever carries it; and the three ways in which that fails, which ask for three different answers. */
import { Context, type Effect, Schema } from "effect"
import { shortText } from "../../domain/Text.ts"

/**
 * An address that needs no quoting anywhere: letters, digits and `. _ + -`, at a host name. So it can't carry a line break, a comma or a
 * second address into a header or an SMTP command.
 */
export const EmailAddress = Schema.String.check(
  Schema.makeFilter(
    (text: string) => (text.length <= 254 && addressPattern.test(text)) || "must be an address as name@host.example"
  )
).pipe(Schema.brand("EmailAddress"))
export type EmailAddress = typeof EmailAddress.Type

/** RFC 5321, section 4.5.3.1: up to 64 octets in front of the @. */
const addressPattern = /^(?=[^@]{1,64}@)[A-Za-z0-9]+(?:[._+-]+[A-Za-z0-9]+)*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*$/

/** One line of at most 200 characters: what stands in a header must not end it. */
export const Subject = shortText(200).check(
  Schema.makeFilter((text: string) => !/\p{Cc}/u.test(text) || "must not contain control characters")
)

/** A mail as it is sent. */
export interface Mail {
  /** Its identity, without `<` and `>`: the same in each send of the same mail, so a receiver that looks can tell a copy. */
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

/** The mail was certainly not taken: no server, a server that is busy or knows us not, or one that says "later". */
export class MailUnavailable extends Schema.TaggedError<MailUnavailable>()("MailUnavailable", {
  reason: Schema.String
}) {
  override get message() {
    return `the mail was not taken: ${this.reason}`
  }
}

/** The mail was on its way when the answer failed to come: it may have been taken, and nobody can tell. */
export class MailOutcomeUnknown extends Schema.TaggedError<MailOutcomeUnknown>()("MailOutcomeUnknown", {
  reason: Schema.String
}) {
  override get message() {
    return `the mail may have been taken, or not: ${this.reason}`
  }
}

export type MailError = MailRefused | MailUnavailable | MailOutcomeUnknown

/** Whose mail it is. */
export const MailSettings = Context.Reference<{
  /** The sender of every mail; its host is also the right side of each Message-ID. */
  readonly from: EmailAddress
  /** Customers are known by their id alone: their mail goes to an address made of it, at this host. */
  readonly customerHost: string
  /** From the first connection attempt to the server's last word; below the task's own time, so that the outcome can be recorded. */
  readonly sendTimeoutMillis: number
}>("paid-once/application/mail/MailSettings", {
  // `.example` is nobody's and never will be (RFC 2606): a mail that goes astray reaches no stranger.
  defaultValue: () => ({
    from: EmailAddress.make("shop@paid-once.example"),
    customerHost: "customers.example",
    sendTimeoutMillis: 30_000
  })
})

export class MailTransport extends Context.Service<
  MailTransport,
  {
    /** Hands the mail over; succeeds once the other side has answered for it. Interrupted, the connection is cut. */
    readonly send: (mail: Mail) => Effect.Effect<void, MailError>
  }
>()("paid-once/application/mail/MailTransport") {}
