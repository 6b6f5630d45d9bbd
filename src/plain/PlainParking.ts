/** Parking as two layers, one for each side; they take the place of `Plain.blocking`. A production service has both. */
import type { PgClient } from "@effect/sql-pg"
import { Layer } from "effect"
import type { SqlClient } from "effect/sql"
import type { Holds as InboxHolds } from "../inbox/holds/Holds.ts"
import * as InboxParking from "../inbox/holds/Parking.ts"
import { Inbox } from "../inbox/Inbox.ts"
import type { Holds as OutboxHolds } from "../outbox/holds/Holds.ts"
import * as OutboxParking from "../outbox/holds/Parking.ts"

/** An event that the broker refuses makes its own aggregate wait, and no other. */
export const outbox: Layer.Layer<OutboxHolds, never, PgClient.PgClient> = OutboxParking.layer

/** An event that a subscriber can't apply makes its own aggregate wait, for this subscriber, and nothing else. */
export const inbox: Layer.Layer<InboxHolds, never, PgClient.PgClient | SqlClient.SqlClient> = Layer.provide(
  InboxParking.layer,
  Inbox.layer
)
