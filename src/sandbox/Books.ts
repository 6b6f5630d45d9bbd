/**
 * The sandbox gateway's books: charges, refunds, and the keys that make each of them once. A key is known for
 * {@link BooksSettings}' retention and no longer: after it the same key charges anew, as it would elsewhere.
 */
import { Context, Effect, Layer, Option } from "effect"
import { SqlClient, type SqlError } from "effect/sql"

/** How long a key is known, in milliseconds of the database's clock. */
export const BooksSettings = Context.Reference<{ readonly keyRetentionMillis: number }>(
  "paid-once/sandbox/BooksSettings",
  { defaultValue: () => ({ keyRetentionMillis: 86_400_000 }) }
)

/** What a client asks to be charged. */
export interface NewCharge {
  readonly key: string
  readonly amountMinor: number
  readonly currency: string
  readonly paymentMethod: string
}

export interface Charge extends NewCharge {
  readonly status: "captured" | "declined"
  readonly reason: string | null
}

/** What a client asks to have given back: money of the charge that was made with `chargeKey`. */
export interface NewRefund {
  readonly key: string
  readonly chargeKey: string
  readonly amountMinor: number
  readonly currency: string
}

/** A report to be delivered so many times once its charge or refund is made. */
export interface Report {
  readonly id: string
  readonly body: string
  readonly deliveries: number
}

/** `isNew`: made by this request, and not by an earlier one with its key. */
export interface Made<A> {
  readonly entry: A
  readonly isNew: boolean
}

/** See {@link Books}. */
export interface BooksService {
  /** Makes the charge, unless its key has made one already: then that one, whatever it was for. */
  readonly charge: (
    charge: NewCharge,
    declineReason: string | null,
    report: Report | undefined
  ) => Effect.Effect<Made<Charge>, SqlError.SqlError>
  readonly findCharge: (key: string) => Effect.Effect<Option.Option<Charge>, SqlError.SqlError>
  /** Makes the refund, unless its key has made one already; or says why not. */
  readonly refund: (
    refund: NewRefund,
    report: Report | undefined
  ) => Effect.Effect<Made<NewRefund> | { readonly refused: string }, SqlError.SqlError>
  readonly findRefund: (key: string) => Effect.Effect<Option.Option<NewRefund>, SqlError.SqlError>
  /** Counts the tries of a key; 1 for the first. */
  readonly tries: (key: string) => Effect.Effect<number, SqlError.SqlError>
  /** Totals by currency over everything, and the newest `limit` charges and refunds. */
  readonly ledger: (limit: number) => Effect.Effect<object, SqlError.SqlError>
}

export class Books extends Context.Service<Books, BooksService>()("paid-once/sandbox/Books") {
  static readonly layer: Layer.Layer<Books, never, SqlClient.SqlClient> = Layer.effect(
    Books,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { keyRetentionMillis } = yield* BooksSettings
      const retention = sql`${keyRetentionMillis}::float8 * interval '1 millisecond'`

      const chargeColumns = sql.literal(`
        c.idempotency_key AS key, c.amount_minor::float8 AS "amountMinor", c.currency, c.payment_method AS "paymentMethod", c.status,
        c.decline_reason AS reason`)
      const refundColumns = sql.literal(`
        r.idempotency_key AS key, r.charge_key AS "chargeKey", r.amount_minor::float8 AS "amountMinor", r.currency`)

      /** Claims the key: of two requests at once the second waits for the first. A key that is forgotten is claimed anew. */
      const claim = (kind: "charge" | "refund", key: string) => sql`
        INSERT INTO sandbox_gateway.keys AS k (kind, key, made_id, created_at)
        SELECT ${kind}, ${key}, gen_random_uuid(), clock.now FROM (SELECT clock_now() AS now) AS clock
        ON CONFLICT (kind, key) DO UPDATE SET made_id = excluded.made_id, created_at = excluded.created_at
          WHERE k.created_at <= excluded.created_at - ${retention}
        RETURNING made_id, created_at`

      const tell = (report: Report | undefined) =>
        report === undefined
          ? sql`SELECT`
          : sql`INSERT INTO sandbox_gateway.webhooks (id, body, deliveries_left, created_at, next_attempt_at)
                SELECT ${report.id}::uuid, ${report.body}, ${report.deliveries}::int4, clock_now(), clock_now() FROM made`

      const findCharge = (key: string) =>
        Effect.map(
          sql<Charge>`
            SELECT ${chargeColumns} FROM sandbox_gateway.keys AS k JOIN sandbox_gateway.charges AS c ON c.id = k.made_id
            WHERE k.kind = 'charge' AND k.key = ${key} AND k.created_at > clock_now() - ${retention}`,
          (rows) => Option.fromNullishOr(rows[0])
        )

      const findRefund = (key: string) =>
        Effect.map(
          sql<NewRefund>`
            SELECT ${refundColumns} FROM sandbox_gateway.keys AS k JOIN sandbox_gateway.refunds AS r ON r.id = k.made_id
            WHERE k.kind = 'refund' AND k.key = ${key} AND k.created_at > clock_now() - ${retention}`,
          (rows) => Option.fromNullishOr(rows[0])
        )

      const charge: BooksService["charge"] = Effect.fnUntraced(function* (wanted, declineReason, report) {
        const status = declineReason === null ? "captured" : "declined"
        const made = yield* sql`
          WITH claimed AS (${claim("charge", wanted.key)}),
          made AS (
            INSERT INTO sandbox_gateway.charges (id, idempotency_key, amount_minor, currency, payment_method, status, decline_reason, charged_at)
            SELECT made_id, ${wanted.key}, ${BigInt(wanted.amountMinor)}, ${wanted.currency}, ${wanted.paymentMethod}, ${status},
                   ${declineReason}::text, created_at
            FROM claimed RETURNING id),
          told AS (${tell(report)})
          SELECT id FROM made`
        if (made.length > 0) return { entry: { ...wanted, status, reason: declineReason }, isNew: true }
        return { entry: Option.getOrThrow(yield* findCharge(wanted.key)), isNew: false }
      })

      const refund: BooksService["refund"] = (wanted, report) =>
        Effect.gen(function* () {
          const earlier = yield* findRefund(wanted.key)
          if (Option.isSome(earlier)) return { entry: earlier.value, isNew: false }
          // The newest charge of its key: that is the one which the key stood for when the client last heard of it. Its lock makes
          // refunds of one charge follow one another.
          const [found] = yield* sql<{ readonly id: string; readonly left: number; readonly currency: string }>`
            SELECT c.id, c.currency, c.amount_minor::float8 AS left FROM sandbox_gateway.charges AS c
            WHERE c.idempotency_key = ${wanted.chargeKey} AND c.status = 'captured' ORDER BY c.charged_at DESC LIMIT 1 FOR UPDATE`
          if (found === undefined) return { refused: `there is no captured charge ${wanted.chargeKey}` }
          if (found.currency !== wanted.currency) return { refused: `the charge was in ${found.currency}` }
          const again = yield* findRefund(wanted.key)
          if (Option.isSome(again)) return { entry: again.value, isNew: false }
          const [given] = yield* sql<{ readonly sum: number }>`
            SELECT coalesce(sum(amount_minor), 0)::float8 AS sum FROM sandbox_gateway.refunds WHERE charge_id = ${found.id}::uuid`
          if (given!.sum + wanted.amountMinor > found.left)
            return { refused: `only ${found.left - given!.sum} of the charge are left` }
          yield* sql`
            WITH claimed AS (${claim("refund", wanted.key)}),
            made AS (
              INSERT INTO sandbox_gateway.refunds (id, charge_id, idempotency_key, charge_key, amount_minor, currency, refunded_at)
              SELECT made_id, ${found.id}::uuid, ${wanted.key}, ${wanted.chargeKey}, ${BigInt(wanted.amountMinor)}, ${wanted.currency}, created_at
              FROM claimed RETURNING id),
            told AS (${tell(report)})
            SELECT id FROM made`
          return { entry: wanted, isNew: true }
        }).pipe(sql.withTransaction)

      const tries = (key: string) =>
        Effect.map(
          sql<{ readonly count: number }>`
            INSERT INTO sandbox_gateway.tries AS t (key, count) VALUES (${key}, 1)
            ON CONFLICT (key) DO UPDATE SET count = t.count + 1 RETURNING count`,
          ([row]) => row!.count
        )

      const ledger = Effect.fnUntraced(function* (limit: number) {
        const totals = yield* sql`
          SELECT c.currency, count(*) FILTER (WHERE c.status = 'captured')::float8 AS captured,
                 count(*) FILTER (WHERE c.status = 'declined')::float8 AS declined,
                 coalesce(sum(c.amount_minor) FILTER (WHERE c.status = 'captured'), 0)::float8 AS "capturedMinor",
                 count(r.id)::float8 AS refunded, coalesce(sum(r.amount_minor), 0)::float8 AS "refundedMinor"
          FROM sandbox_gateway.charges AS c
          LEFT JOIN (SELECT charge_id, min(id::text) AS id, sum(amount_minor) AS amount_minor FROM sandbox_gateway.refunds GROUP BY charge_id) AS r
            ON r.charge_id = c.id
          GROUP BY c.currency ORDER BY c.currency`
        const charges = yield* sql`
          SELECT ${chargeColumns} FROM sandbox_gateway.charges AS c ORDER BY c.charged_at DESC, c.id LIMIT ${limit}`
        const refunds = yield* sql`
          SELECT ${refundColumns} FROM sandbox_gateway.refunds AS r ORDER BY r.refunded_at DESC, r.id LIMIT ${limit}`
        return { totals, charges, refunds }
      })

      return Books.of({ charge, findCharge, refund, findRefund, tries, ledger })
    })
  )
}
