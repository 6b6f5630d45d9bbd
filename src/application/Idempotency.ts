/**
 * Idempotency keys: a repeated request gets the first one's answer, byte for byte, and changes nothing.
 *
 * A key belongs to a caller, a method and a path. "The same request" compares the decoded body, so spaces and the order of fields do not
 * matter. Where a use case reads no body, its text is compared. Source: the IETF draft "The Idempotency-Key HTTP Header Field".
 */
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { createHash } from "node:crypto"
import { PaymentId } from "../domain/Ids.ts"
import { shortText } from "../domain/Text.ts"
import * as Rows from "../platform/Rows.ts"
import * as Traced from "../platform/Traced.ts"
import { Transaction } from "../platform/Transaction.ts"

/** A key, chosen by the client. */
export const IdempotencyKey = shortText(255).pipe(Schema.brand("IdempotencyKey"))
export type IdempotencyKey = typeof IdempotencyKey.Type

/** A request that carries a key. `body` is the decoded body. */
export interface KeyedRequest {
  /** The name of the program that sends it: callers don't find each other's keys. */
  readonly caller: string
  readonly method: string
  readonly path: string
  readonly key: IdempotencyKey
  readonly body: unknown
}

/** A final answer: its status, its body's exact text, and the payment that it leads to. */
export interface FinalAnswer {
  readonly status: typeof Status.Type
  readonly body: string
  readonly paymentId?: PaymentId | undefined
}

/** The key was used for another body. */
export class KeyReused extends Schema.TaggedError<KeyReused>()("KeyReused", { key: Schema.String }) {
  override get message() {
    return `the Idempotency-Key "${this.key}" was already used with another body`
  }
}

/** What a key stands for. `subjectId` is the id of the order or payment that the request makes. */
export type KeyState =
  /** The key was free, and is the caller's now. */
  | { readonly _tag: "First" }
  /** A request with it has begun, and has no final answer yet. */
  | { readonly _tag: "Begun"; readonly subjectId: string }
  | { readonly _tag: "Answered"; readonly subjectId: string; readonly answer: FinalAnswer }

const insertedKey = Rows.first(Schema.Struct({ subjectId: Schema.String }))
/** 202 is final for a request that has begun something: the same request again begins nothing. */
const Status = Schema.Literals([200, 201, 202, 402])
const firstKey = Rows.first(
  Schema.Struct({
    isSame: Schema.Boolean,
    subjectId: Schema.String,
    status: Schema.NullOr(Status),
    body: Schema.NullOr(Schema.String),
    paymentId: Schema.NullOr(PaymentId)
  })
)
const firstAnswer = Rows.first(Schema.Struct({ status: Status, body: Schema.String }))

/** The state of a key that an insert found taken; undefined where the key has expired since. */
const find = Effect.fnUntraced(function* (
  request: KeyedRequest
): Effect.fn.Return<KeyState | undefined, KeyReused, Transaction> {
  const { sql } = yield* Transaction
  const found = yield* Effect.orDie(
    firstKey(sql`
      SELECT body_hash = ${bodyHash(request.body)} AS "isSame", subject_id AS "subjectId",
             response_status AS status, response_body AS body, payment_id AS "paymentId"
      FROM idempotency_keys
      WHERE caller = ${request.caller} AND method = ${request.method} AND path = ${request.path}
        AND idempotency_key = ${request.key}`)
  )
  if (found === undefined) return undefined
  const { body, isSame, paymentId, status, subjectId } = found
  if (!isSame) return yield* new KeyReused({ key: request.key })
  return status === null || body === null
    ? { _tag: "Begun", subjectId }
    : { _tag: "Answered", subjectId, answer: { status, body, ...(paymentId === null ? {} : { paymentId }) } }
})

/** How long a key is kept once its payment or order is final, in days: clients repeat a request within hours. 0 keeps all keys. */
export const IdempotencySettings = Context.Reference<{ readonly retentionDays: number }>(
  "paid-once/application/IdempotencySettings",
  { defaultValue: () => ({ retentionDays: 7 }) }
)

/** Keys that one statement deletes: its locks last for milliseconds. */
const expiryChunk = 1_000
/** Chunks of one round. The next round continues. */
const maxChunks = 100

/**
 * Deletes the keys that are older than their retention. A key whose payment is still open is kept: a repeated request must find it.
 * Returns how many it deleted; a dry run counts the first chunk only.
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
                      WHERE p.id IN (k.subject_id, k.payment_id) AND p.status IN ('charging', 'manual', 'refunding'))
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
     * Claims the key for `subjectId`, or returns what the key stands for already. Of two transactions that claim one key, the second waits
     * for the first to end and sees its result.
     */
    readonly claim: (request: KeyedRequest, subjectId: string) => Effect.Effect<KeyState, KeyReused, Transaction>
    /** Stores the final answer of the request that made `subjectId`, if that had a key and has no answer yet. */
    readonly answer: (subjectId: string, answer: FinalAnswer) => Effect.Effect<void, never, Transaction>
    /** The final answer of the request that made `subjectId`, if there is one yet. */
    readonly answerOf: (subjectId: string) => Effect.Effect<FinalAnswer | undefined, never, Transaction>
    /** Whether a request that made `subjectId` had a key, and the key is still kept. That of an open payment is. */
    readonly isKnown: (subjectId: string) => Effect.Effect<boolean, never, Transaction>
  }
>()("paid-once/application/Idempotency") {
  static readonly layer: Layer.Layer<Idempotency> = Layer.succeed(Idempotency, {
    claim: Traced.fn("Idempotency.claim")(function* (request, subjectId) {
      const { sql } = yield* Transaction
      const { body, caller, key, method, path } = request
      // At most two rounds: a key may expire between the two statements, but one that was just inserted does not.
      for (;;) {
        const inserted = yield* Effect.orDie(
          insertedKey(sql`
            INSERT INTO idempotency_keys (caller, method, path, idempotency_key, body_hash, subject_id, created_at)
            VALUES (${caller}, ${method}, ${path}, ${key}, ${bodyHash(body)}, ${subjectId}::uuid, clock_now())
            ON CONFLICT DO NOTHING RETURNING subject_id AS "subjectId"`)
        )
        if (inserted !== undefined) return { _tag: "First" as const }
        const found = yield* find(request)
        if (found !== undefined) return found
      }
    }),
    answer: Traced.fn("Idempotency.answer")(function* (subjectId, answer) {
      const { sql } = yield* Transaction
      yield* Effect.orDie(sql`
        UPDATE idempotency_keys
        SET response_status = ${answer.status}::int2, response_body = ${answer.body},
            payment_id = ${answer.paymentId ?? null}::uuid
        WHERE subject_id = ${subjectId}::uuid AND response_status IS NULL`)
    }),
    answerOf: Traced.fn("Idempotency.answerOf")(function* (subjectId) {
      const { sql } = yield* Transaction
      return yield* Effect.orDie(
        firstAnswer(sql`
          SELECT response_status AS status, response_body AS body FROM idempotency_keys
          WHERE subject_id = ${subjectId}::uuid AND response_status IS NOT NULL`)
      )
    }),
    isKnown: Traced.fn("Idempotency.isKnown")(function* (subjectId) {
      const { sql } = yield* Transaction
      const rows = yield* Effect.orDie(sql`SELECT FROM idempotency_keys WHERE subject_id = ${subjectId}::uuid LIMIT 1`)
      return rows.length > 0
    })
  })
}

/**
 * The answer of a use case that is done in one transaction, once for each key. `work` runs for the first request, and its answer commits
 * with its effects. A request without a key is always worked on. The caller holds the lock of `subjectId`, the order: requests about it
 * come one after another, so that no other request of the order waits for its answer here.
 */
export const once = Effect.fnUntraced(function* <E, R>(
  idempotency: Idempotency["Service"],
  request: KeyedRequest | undefined,
  subjectId: string,
  work: Effect.Effect<FinalAnswer, E, R>
) {
  if (request === undefined) return yield* work
  const key = yield* idempotency.claim(request, subjectId)
  switch (key._tag) {
    case "First": {
      const answer = yield* work
      yield* idempotency.answer(subjectId, answer)
      return answer
    }
    case "Answered":
      return key.answer
    case "Begun":
      // Claim and answer commit together, so no other transaction sees a claim without its answer.
      return yield* Effect.die(new Error(`the key of a request about ${key.subjectId} has no answer`))
  }
})

/** SHA-256 over the body's JSON with sorted keys: equal values have equal hashes, however they were written. */
const bodyHash = (body: unknown): Uint8Array => createHash("sha256").update(canonicalJson(body)).digest()

const canonicalJson = (value: unknown): string =>
  JSON.stringify(value, (_, nested: unknown) =>
    typeof nested === "object" && nested !== null && !Array.isArray(nested)
      ? Object.fromEntries(Object.entries(nested).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : nested
  )
