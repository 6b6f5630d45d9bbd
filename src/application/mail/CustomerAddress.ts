/** Where a customer's mail goes. The sample knows customers by their ids alone; a real shop would look the address up here. */
import type { CustomerId } from "../../domain/Ids.ts"
import { Effect } from "effect"
import { createHash } from "node:crypto"
import { EmailAddress, MailSettings } from "./MailTransport.ts"

/**
 * The id in front of `MAIL_CUSTOMER_HOST`, where it is plain (small letters and digits, with single dots, dashes or underscores between them);
 * of any other one the hash. So an id never says anything to a mail server but who is meant, and no two customers share an address:
 * servers may take capitals for small letters, and drop what is behind a `+`.
 */
export const addressOf = Effect.fnUntraced(function* (customerId: CustomerId) {
  const { customerHost } = yield* MailSettings
  const isPlain = customerId.length <= 60 && /^[a-z0-9]+(?:[._-][a-z0-9]+)*$/.test(customerId)
  const name =
    isPlain && !customerId.startsWith("id_")
      ? customerId
      : `id_${createHash("sha256").update(customerId).digest("hex").slice(0, 40)}`
  return EmailAddress.make(`${name}@${customerHost}`)
})
