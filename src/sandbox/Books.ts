/**
 * The sandbox gateway's books: charges, refunds, and the idempotency keys that make each of them once. A key is kept for the retention of
 * {@link BooksSettings}. After that the same key charges again, as at a real gateway.
 */
import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient, type SqlError, type Statement } from "effect/sql"
import { SumMinor } from "../domain/Money.ts"
import * as Rows from "../platform/Rows.ts"

/** How long a key is kept, in milliseconds by the database's clock. */
export const BooksSettings = Context.Reference<{ readonly keyRetentionMillis: number }>(
  "paid-once/sandbox/BooksSettings",
  { defaultValue: () => ({ keyRetentionMillis: 86_400_000 }) }
)

/** A charge that a client requests. */
export interface NewCharge {
  readonly key: string
  readonly amountMinor: number
  readonly currency: string
  readonly paymentMethod: string
}

const Charge = Schema.Struct({
  key: Schema.String,
  amountMinor: Schema.Int,
  currency: Schema.String,
  paymentMethod: Schema.String,
  status: Schema.Literals(["captured", "declined"]),
  reason: Schema.NullOr(Schema.String)
})
export type Charge = typeof Charge.Type

/** A refund that a client requests, of the charge with `chargeKey`. */
const NewRefund = Schema.Struct({
  key: Schema.String,
  chargeKey: Schema.String,
  amountMinor: Schema.Int,
  currency: Schema.String
})
export type NewRefund = typeof NewRefund.Type

/** A webhook report of a charge or refund, and how often it is to be delivered. */
export interface Report {
  readonly id: string
  readonly body: string
  readonly deliveries: number
}

/** `isNew`: made by this request, not by an earlier one with its key. */
export interface Made<A> {
  readonly entry: A
  readonly isNew: boolean
}

/** All that was made under a key: a key that was forgotten charges again. */
const LedgerEntry = Schema.Struct({
  key: Schema.String,
  charges: Schema.Array(Schema.Json),
  refunds: Schema.Array(Schema.Json)
})
export type LedgerEntry = typeof LedgerEntry.Type

/** See {@link Books}. */
export interface BooksService {
  /** Makes the charge. If its key has made one already, returns that one, even if it was for something else. */
  readonly charge: (
    charge: NewCharge,
    declineReason: string | null,
    report: Report | undefined
  ) => Effect.Effect<Made<Charge>, SqlError.SqlError>
  readonly findCharge: (key: string) => Effect.Effect<Option.Option<Charge>, SqlError.SqlError>
  /** Makes the refund. If its key has made one already, returns that one. Refuses with a reason. */
  readonly refund: (
    refund: NewRefund,
    report: Report | undefined
  ) => Effect.Effect<Made<NewRefund> | { readonly refused: string }, SqlError.SqlError>
  readonly findRefund: (key: string) => Effect.Effect<Option.Option<NewRefund>, SqlError.SqlError>
  /** Stores a report that comes with no charge and no refund. */
  readonly report: (report: Report) => Effect.Effect<void, SqlError.SqlError>
  /** Counts a request with the key, and returns the count: 1 for the first. */
  readonly tries: (key: string) => Effect.Effect<number, SqlError.SqlError>
  /** Totals by currency, and the newest `limit` charges and refunds. */
  readonly ledger: (limit: number) => Effect.Effect<object, SqlError.SqlError>
  /** A page of the whole ledger: the `limit` keys behind `after`, in the order of their bytes, each with all that was made under it. */
  readonly entries: (after: string, limit: number) => Effect.Effect<ReadonlyArray<LedgerEntry>, SqlError.SqlError>
  /** The ledger's entries of these keys. */
  readonly entriesOf: (keys: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<LedgerEntry>, SqlError.SqlError>
}

const firstCharge = Rows.first(Charge)
const allCharges = Rows.all(Charge)
const firstRefund = Rows.first(NewRefund)
const allRefunds = Rows.all(NewRefund)
const allEntries = Rows.all(LedgerEntry)
const firstClaimed = Rows.first(Schema.Struct({ id: Schema.String, at: Schema.Date }))
const firstCaptured = Rows.first(
  Schema.Struct({ id: Schema.String, currency: Schema.String, amountMinor: Schema.Number })
)
const sumOf = Rows.one(Schema.Struct({ sum: Schema.Number }))
const countOf = Rows.one(Schema.Struct({ count: Schema.Int }))
const allTotals = Rows.all(
  Schema.Struct({
    currency: Schema.String,
    captured: Schema.Number,
    declined: Schema.Number,
    capturedMinor: SumMinor,
    refunded: Schema.Number,
    refundedMinor: SumMinor
  })
)

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

      /**
       * Claims the key for a new charge or refund, whose id it draws. Undefined where the key is taken: of two requests at once the second
       * waits for the first. A key that is older than its retention is claimed anew.
       */
      const claim = (kind: "charge" | "refund", key: string) =>
        firstClaimed(sql`
          INSERT INTO sandbox_gateway.keys AS k (kind, key, made_id, created_at)
          SELECT ${kind}, ${key}, gen_random_uuid(), clock.now FROM (SELECT clock_now() AS now) AS clock
          ON CONFLICT (kind, key) DO UPDATE SET made_id = excluded.made_id, created_at = excluded.created_at
            WHERE k.created_at <= excluded.created_at - ${retention}
          RETURNING made_id AS id, created_at AS at`)

      /** Stores the report in the transaction of its charge or refund. */
      const store = (report: Report | undefined): Effect.Effect<void, SqlError.SqlError> =>
        report === undefined
          ? Effect.void
          : Effect.asVoid(sql`
              INSERT INTO sandbox_gateway.webhooks (id, body, deliveries_left, created_at, next_attempt_at)
              VALUES (${report.id}::uuid, ${report.body}, ${report.deliveries}::int4, clock_now(), clock_now())`)

      const findCharge = (key: string) =>
        Effect.map(
          firstCharge(sql`
            SELECT ${chargeColumns} FROM sandbox_gateway.keys AS k JOIN sandbox_gateway.charges AS c ON c.id = k.made_id
            WHERE k.kind = 'charge' AND k.key = ${key} AND k.created_at > clock_now() - ${retention}`),
          Option.fromUndefinedOr
        )

      const findRefund = (key: string) =>
        Effect.map(
          firstRefund(sql`
            SELECT ${refundColumns} FROM sandbox_gateway.keys AS k JOIN sandbox_gateway.refunds AS r ON r.id = k.made_id
            WHERE k.kind = 'refund' AND k.key = ${key} AND k.created_at > clock_now() - ${retention}`),
          Option.fromUndefinedOr
        )

      const charge: BooksService["charge"] = (wanted, declineReason, report) =>
        Effect.gen(function* () {
          const { amountMinor, currency, key, paymentMethod } = wanted
          const claimed = yield* claim("charge", key)
          if (claimed === undefined) return { entry: Option.getOrThrow(yield* findCharge(key)), isNew: false }
          const status = declineReason === null ? ("captured" as const) : ("declined" as const)
          yield* sql`
            INSERT INTO sandbox_gateway.charges
              (id, idempotency_key, amount_minor, currency, payment_method, status, decline_reason, charged_at)
            VALUES (${claimed.id}::uuid, ${key}, ${BigInt(amountMinor)}, ${currency}, ${paymentMethod}, ${status},
                    ${declineReason}::text, ${claimed.at}::timestamptz)`
          yield* store(report)
          return { entry: { ...wanted, status, reason: declineReason }, isNew: true }
        }).pipe(sql.withTransaction)

      const refund: BooksService["refund"] = (wanted, report) =>
        Effect.gen(function* () {
          const { amountMinor, chargeKey, currency, key } = wanted
          const earlier = yield* findRefund(key)
          if (Option.isSome(earlier)) return { entry: earlier.value, isNew: false }
          // The newest charge of the key: the one that the client was last told about. Its lock makes refunds of one charge
          // happen one after another.
          const charge = yield* firstCaptured(sql`
            SELECT c.id, c.currency, c.amount_minor::float8 AS "amountMinor" FROM sandbox_gateway.charges AS c
            WHERE c.idempotency_key = ${chargeKey} AND c.status = 'captured' ORDER BY c.charged_at DESC LIMIT 1 FOR UPDATE`)
          if (charge === undefined) return { refused: `there is no captured charge ${chargeKey}` }
          if (charge.currency !== currency) return { refused: `the charge was in ${charge.currency}` }
          const again = yield* findRefund(key)
          if (Option.isSome(again)) return { entry: again.value, isNew: false }
          const { sum } = yield* sumOf(sql`
            SELECT coalesce(sum(amount_minor), 0)::float8 AS sum FROM sandbox_gateway.refunds WHERE charge_id = ${charge.id}::uuid`)
          if (sum + amountMinor > charge.amountMinor) {
            return { refused: `only ${charge.amountMinor - sum} of the charge are left` }
          }
          const claimed = yield* claim("refund", key)
          // A refund of another charge has taken the key since it was looked for.
          if (claimed === undefined) return { entry: Option.getOrThrow(yield* findRefund(key)), isNew: false }
          yield* sql`
            INSERT INTO sandbox_gateway.refunds (id, charge_id, idempotency_key, charge_key, amount_minor, currency, refunded_at)
            VALUES (${claimed.id}::uuid, ${charge.id}::uuid, ${key}, ${chargeKey}, ${BigInt(amountMinor)}, ${currency},
                    ${claimed.at}::timestamptz)`
          yield* store(report)
          return { entry: wanted, isNew: true }
        }).pipe(sql.withTransaction)

      const tries = (key: string) =>
        Effect.map(
          countOf(sql`
            INSERT INTO sandbox_gateway.tries AS t (key, count) VALUES (${key}, 1)
            ON CONFLICT (key) DO UPDATE SET count = t.count + 1 RETURNING count`),
          ({ count }) => count
        )

      const ledger = Effect.fnUntraced(function* (limit: number) {
        const totals = yield* allTotals(sql`
          SELECT c.currency, count(*) FILTER (WHERE c.status = 'captured')::float8 AS captured,
                 count(*) FILTER (WHERE c.status = 'declined')::float8 AS declined,
                 coalesce(sum(c.amount_minor) FILTER (WHERE c.status = 'captured'), 0)::text AS "capturedMinor",
                 count(r.id)::float8 AS refunded, coalesce(sum(r.amount_minor), 0)::text AS "refundedMinor"
          FROM sandbox_gateway.charges AS c
          LEFT JOIN (SELECT charge_id, min(id::text) AS id, sum(amount_minor) AS amount_minor FROM sandbox_gateway.refunds GROUP BY charge_id) AS r
            ON r.charge_id = c.id
          GROUP BY c.currency ORDER BY c.currency`)
        const charges = yield* allCharges(sql`
          SELECT ${chargeColumns} FROM sandbox_gateway.charges AS c ORDER BY c.charged_at DESC, c.id LIMIT ${limit}`)
        const refunds = yield* allRefunds(sql`
          SELECT ${refundColumns} FROM sandbox_gateway.refunds AS r ORDER BY r.refunded_at DESC, r.id LIMIT ${limit}`)
        return { totals, charges, refunds }
      })

      /** Both lists are found by an index. */
      const entriesOf = (keys: Statement.Fragment) =>
        allEntries(sql`
          SELECT k.key, (SELECT json_agg(json_build_object('status', c.status, 'amountMinor', c.amount_minor, 'currency', c.currency) ORDER BY c.charged_at)
                         FROM sandbox_gateway.charges AS c WHERE c.idempotency_key COLLATE "C" = k.key) AS charges,
                 (SELECT coalesce(json_agg(json_build_object('key', r.idempotency_key, 'amountMinor', r.amount_minor, 'currency', r.currency)), '[]')
                  FROM sandbox_gateway.charges AS c JOIN sandbox_gateway.refunds AS r ON r.charge_id = c.id
                  WHERE c.idempotency_key COLLATE "C" = k.key) AS refunds
          FROM (${keys}) AS k ORDER BY k.key COLLATE "C"`)

      return Books.of({
        entries: (after, limit) =>
          entriesOf(sql`
            SELECT DISTINCT idempotency_key COLLATE "C" AS key FROM sandbox_gateway.charges
            WHERE idempotency_key COLLATE "C" > ${after} ORDER BY 1 LIMIT ${limit}`),
        entriesOf: (keys) =>
          entriesOf(sql`
            SELECT DISTINCT idempotency_key COLLATE "C" AS key FROM sandbox_gateway.charges
            WHERE idempotency_key COLLATE "C" = ANY (${[...keys]}::text[])`),
        charge,
        findCharge,
        refund,
        findRefund,
        report: store,
        tries,
        ledger
      })
    })
  )
}
