/** The name in a customer's address: SQL makes the one that the mails have. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { nameOf, nameOfSql } from "../../../src/application/mail/CustomerAddress.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"

it.live("SQL names a customer's mailbox as the mails do", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const ids = [
      "ada",
      "ada.b_c-9",
      "Ada",
      "ada.",
      "ada\n",
      "ada\r\nBcc: bob@evil.example",
      "id_0",
      "ädä",
      "😀",
      "a".repeat(60),
      "a".repeat(61),
      "erased-0197d1a0-0000-7000-8000-000000000000"
    ]
    const rows = yield* sql<{ readonly name: string }>`
      SELECT ${sql.literal(nameOfSql("id"))} AS name FROM unnest(${ids}::text[]) WITH ORDINALITY AS ids(id, at) ORDER BY at`
    assert.deepStrictEqual(
      rows.map(({ name }) => name),
      ids.map(nameOf)
    )
  }).pipe(Effect.provide(TestDatabase.layerPool))
)
