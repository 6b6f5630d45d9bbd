/** The address of a customer. The sample knows customers by their ids alone; a real shop would look the address up here. */
import { Effect } from "effect"
import { createHash } from "node:crypto"
import type { CustomerId } from "../../domain/Ids.ts"
import { EmailAddress, MailSettings } from "./MailTransport.ts"

/**
 * The id, or a hash of it: the part of an address before the `@`. A plain id is used as it is: lower-case letters and digits, with single
 * dots, dashes or underscores between them. Any other id is hashed, for two reasons. Mail servers may ignore case and the part after a `+`,
 * which would give two customers one address. And an id must not carry characters that have a meaning in an address.
 */
export const nameOf = (customerId: string): string => {
  const isPlain = customerId.length <= 60 && /^[a-z0-9]+(?:[._-][a-z0-9]+)*$/.test(customerId)
  return isPlain && !customerId.startsWith("id_")
    ? customerId
    : `id_${createHash("sha256").update(customerId).digest("hex").slice(0, 40)}`
}

/** The same name in SQL, for a look at many rows. `id` is a customer's id, in SQL. */
export const nameOfSql = (id: string): string => `
  CASE WHEN length(${id}) <= 60 AND ${id} ~ '^[a-z0-9]+([._-][a-z0-9]+)*$' AND NOT starts_with(${id}, 'id_') THEN ${id}
       ELSE 'id_' || left(encode(sha256(convert_to(${id}, 'UTF8')), 'hex'), 40) END`

/** The customer's address, at `MAIL_CUSTOMER_HOST`. */
export const addressOf = Effect.fnUntraced(function* (customerId: CustomerId) {
  const { customerHost } = yield* MailSettings
  return EmailAddress.make(`${nameOf(customerId)}@${customerHost}`)
})
