/**
 * Idempotency keys: the same request, sent again, gets the answer that the first one got, byte for byte, and changes nothing.
 *
 * A key belongs to a method and a path. "The same request" compares the decoded body, so spaces and the order of fields do not
 * matter. Source: the IETF draft "The Idempotency-Key HTTP Header Field".
 */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type SqlError, type Statement } from "effect/sql"
import { createHash } from "node:crypto"
import { Transaction } from "../platform/Transaction.ts"
import { shortText } from "../domain/Text.ts"

/** A key as the client chose it. */
export const IdempotencyKey = shortText(255).pipe(Schema.brand("IdempotencyKey"))
export type IdempotencyKey = typeof IdempotencyKey.Type

/** A request that carries a key. `body` is the decoded body. */
export interface KeyedRequest {
  readonly method: string
  readonly path: string
  readonly key: IdempotencyKey
  readonly body: unknown
}

/** An answer that stands for good: its status and its body's exact text. */
export interface FinalAnswer {
  readonly status: 200 | 201 | 402
  readonly body: string
}

/** The key was used for another body. */
export class KeyReused extends Schema.TaggedError<KeyReused>()("KeyReused", { key: Schema.String }) {
  override get message() {
    return `the Idempotency-Key "${this.key}" was already used with another body`
  }
}

/** What a key stands for: a request that has its answer, or one that has begun (`subjectId`: what it made) and has none yet. */
export type Claim =
  | { readonly _tag: "First" }
  | { readonly _tag: "Begun"; readonly subjectId: string }
  | { readonly _tag: "Answered"; readonly subjectId: string; readonly answer: FinalAnswer }

/** The statement that claims the key for the `id` of the relation `from`, at its `now`; it returns no row where the key is taken. */
export const claiming = (
  sql: Statement.Constructor,
  { body, key, method, path }: KeyedRequest,
  from: Statement.Fragment
): Statement.Statement<{ readonly subject_id: string }> => sql`
  INSERT INTO idempotency_keys (method, path, idempotency_key, body_hash, subject_id, created_at)
  SELECT ${method}, ${path}, ${key}, ${bodyHash(body)}, fresh.id, fresh.now FROM ${from} AS fresh
  ON CONFLICT DO NOTHING RETURNING subject_id`

/** The statement that stores the final answer of whatever began with `subjectId`. */
export const answering = (sql: Statement.Constructor, subjectId: string, answer: FinalAnswer) => sql`
  UPDATE idempotency_keys SET response_status = ${answer.status}::int2, response_body = ${answer.body}
  WHERE subject_id = ${subjectId}::uuid AND response_status IS NULL`

const find = Effect.fn("Idempotency.find")(function* (request: KeyedRequest) {
  const { sql } = yield* Transaction
  const [row] = yield* Effect.orDie(sql<{
    readonly same: boolean
    readonly subject_id: string
    readonly response_status: FinalAnswer["status"] | null
    readonly response_body: string
  }>`
    SELECT body_hash = ${bodyHash(request.body)} AS same, subject_id, response_status, response_body FROM idempotency_keys
    WHERE method = ${request.method} AND path = ${request.path} AND idempotency_key = ${request.key}`)
  if (row === undefined) return undefined
  if (!row.same) return yield* new KeyReused({ key: request.key })
  return row.response_status === null
    ? { _tag: "Begun" as const, subjectId: row.subject_id }
    : {
        _tag: "Answered" as const,
        subjectId: row.subject_id,
        answer: { status: row.response_status, body: row.response_body }
      }
})

/** How long a key is known, in days, once what it began is final: a client that repeats a request does so within hours. 0 keeps them. */
export const IdempotencySettings = Context.Reference<{ readonly retentionDays: number }>(
  "paid-once/application/IdempotencySettings",
  { defaultValue: () => ({ retentionDays: 7 }) }
)

/** Keys of one statement: its locks last for milliseconds. */
const expiryChunk = 1_000
/** Chunks of a round: what is left is for the next one. */
const maxChunks = 100

/**
 * Deletes the keys that are older than their retention, but none whose payment is still open: whoever repeats that request must find it.
 * Returns how many; a dry run counts the first chunk only.
 */
export const dropExpired = Effect.fn("Idempotency.dropExpired")(function* (
  options: { readonly dryRun?: boolean } = {}
) {
  const sql = yield* SqlClient.SqlClient
  const { retentionDays } = yield* IdempotencySettings
  if (retentionDays === 0) return 0
  const expired = sql`
    SELECT k.ctid FROM idempotency_keys AS k
    WHERE k.created_at < clock_now() - ${retentionDays}::int4 * interval '24 hours'
      AND NOT EXISTS (SELECT FROM payments AS p
                      WHERE p.id = k.subject_id AND p.status IN ('charging', 'manual', 'refunding'))
    ORDER BY k.created_at LIMIT ${expiryChunk}`
  if (options.dryRun === true) return (yield* expired).length
  let dropped = 0
  for (let chunk = 0; chunk < maxChunks; chunk++) {
    const rows = yield* sql`
      DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(${expired} FOR UPDATE OF k SKIP LOCKED)) RETURNING 1 AS one`
    dropped += rows.length
    if (rows.length < expiryChunk) break
  }
  return dropped
}) satisfies (options?: { readonly dryRun?: boolean }) => Effect.Effect<number, SqlError.SqlError, SqlClient.SqlClient>

export class Idempotency extends Context.Service<
  Idempotency,
  {
    /**
     * Claims the key for `subjectId`, or tells what it stands for already. Two claims of one key follow one another: the
     * second waits for the first's transaction, and sees what came of it.
     */
    readonly claim: (request: KeyedRequest, subjectId: string) => Effect.Effect<Claim, KeyReused, Transaction>
    /** What a key stands for that was found taken; undefined where it has expired in the moment between. */
    readonly find: (
      request: KeyedRequest
    ) => Effect.Effect<Exclude<Claim, { readonly _tag: "First" }> | undefined, KeyReused, Transaction>
    /** Stores the final answer of whatever began with `subjectId`, if a key stands for it. */
    readonly answer: (subjectId: string, answer: FinalAnswer) => Effect.Effect<void, never, Transaction>
    /** The final answer of what began with `subjectId`, if there is one yet. */
    readonly answerOf: (subjectId: string) => Effect.Effect<FinalAnswer | undefined, never, Transaction>
  }
>()("paid-once/application/Idempotency") {
  static readonly layer = Layer.succeed(Idempotency, {
    claim: Effect.fn("Idempotency.claim")(function* (request, subjectId) {
      const { sql } = yield* Transaction
      // Twice at the most: the key may expire between the two statements, and a fresh one does not.
      for (;;) {
        const inserted = yield* Effect.orDie(
          claiming(sql, request, sql`(SELECT ${subjectId}::uuid AS id, clock_now() AS now)`)
        )
        if (inserted.length > 0) return { _tag: "First" as const }
        const found = yield* find(request)
        if (found !== undefined) return found
      }
    }),
    find,
    answer: Effect.fn("Idempotency.answer")(function* (subjectId, answer) {
      const { sql } = yield* Transaction
      yield* Effect.orDie(answering(sql, subjectId, answer))
    }),
    answerOf: Effect.fn("Idempotency.answerOf")(function* (subjectId) {
      const { sql } = yield* Transaction
      const [row] = yield* Effect.orDie(sql<{ readonly status: FinalAnswer["status"]; readonly body: string }>`
        SELECT response_status AS status, response_body AS body FROM idempotency_keys
        WHERE subject_id = ${subjectId}::uuid AND response_status IS NOT NULL`)
      return row
    })
  })
}

/** SHA-256 over the body's JSON with sorted keys: equal values have equal hashes, however they were written. */
const bodyHash = (body: unknown): Uint8Array => createHash("sha256").update(canonicalJson(body)).digest()

const canonicalJson = (value: unknown): string =>
  JSON.stringify(value, (_, nested: unknown) =>
    typeof nested === "object" && nested !== null && !Array.isArray(nested)
      ? Object.fromEntries(Object.entries(nested).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : nested
  )
