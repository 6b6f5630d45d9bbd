/**
 * Idempotency keys: the same request, sent again, gets the answer that the first one got, byte for byte, and changes nothing.
 *
 * A key belongs to a method and a path. "The same request" compares the decoded body, so spaces and the order of fields do not
 * matter. Source: the IETF draft "The Idempotency-Key HTTP Header Field".
 */
import { Context, Effect, Layer, Schema } from "effect"
import { createHash } from "node:crypto"
import { Transaction } from "../platform/database/Transaction.ts"
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

export class Idempotency extends Context.Service<
  Idempotency,
  {
    /**
     * Claims the key for `subjectId`, or tells what it stands for already. Two claims of one key follow one another: the
     * second waits for the first's transaction, and sees what came of it.
     */
    readonly claim: (request: KeyedRequest, subjectId: string) => Effect.Effect<Claim, KeyReused, Transaction>
    /** Stores the final answer of whatever began with `subjectId`, if a key stands for it. */
    readonly answer: (subjectId: string, answer: FinalAnswer) => Effect.Effect<void, never, Transaction>
    /** The final answer of what began with `subjectId`, if there is one yet. */
    readonly answerOf: (subjectId: string) => Effect.Effect<FinalAnswer | undefined, never, Transaction>
  }
>()("paid-once/application/Idempotency") {
  static readonly layer = Layer.succeed(Idempotency, {
    claim: Effect.fn("Idempotency.claim")(function* (request, subjectId) {
      const { sql } = yield* Transaction
      const hash = bodyHash(request.body)
      const inserted = yield* Effect.orDie(sql`
        INSERT INTO idempotency_keys (method, path, idempotency_key, body_hash, subject_id, created_at)
        VALUES (${request.method}, ${request.path}, ${request.key}, ${hash}, ${subjectId}::uuid, clock_now())
        ON CONFLICT DO NOTHING RETURNING 1 AS one`)
      if (inserted.length > 0) return { _tag: "First" as const }
      const [row] = yield* Effect.orDie(sql<{
        readonly same: boolean
        readonly subject_id: string
        readonly response_status: FinalAnswer["status"] | null
        readonly response_body: string
      }>`
        SELECT body_hash = ${hash} AS same, subject_id, response_status, response_body FROM idempotency_keys
        WHERE method = ${request.method} AND path = ${request.path} AND idempotency_key = ${request.key}`)
      if (row === undefined) return yield* Effect.die(new Error("an idempotency key was deleted while it was claimed"))
      if (!row.same) return yield* new KeyReused({ key: request.key })
      return row.response_status === null
        ? { _tag: "Begun" as const, subjectId: row.subject_id }
        : {
            _tag: "Answered" as const,
            subjectId: row.subject_id,
            answer: { status: row.response_status, body: row.response_body }
          }
    }),
    answer: Effect.fn("Idempotency.answer")(function* (subjectId, answer) {
      const { sql } = yield* Transaction
      yield* Effect.orDie(sql`
        UPDATE idempotency_keys SET response_status = ${answer.status}::int2, response_body = ${answer.body}
        WHERE subject_id = ${subjectId}::uuid AND response_status IS NULL`)
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
