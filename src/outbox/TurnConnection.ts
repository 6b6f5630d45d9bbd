/** The connection of a turn's statements, if it is not that of the others. */
import { Context } from "effect"
import type { SqlClient } from "effect/sql"

/**
 * Fetches and marks run on this client, where there is one. It may be one connection that all share: then statements of one moment share a packet,
 * and a statement that waits for a lock keeps those behind it waiting.
 */
export const TurnConnection = Context.Reference<SqlClient.SqlClient | undefined>("paid-once/outbox/TurnConnection", {
  defaultValue: () => undefined
})
