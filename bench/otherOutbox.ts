/**
 * The service with another outbox, for `bench pay` to set what an event costs a request against. `BENCH_OUTBOX=none` runs the aggregates' own
 * writes and appends nothing; `barest` appends a number and a text, the least that can be called an outbox. Neither announces anything, and both
 * are good for nothing else.
 */
import { Effect, Layer } from "effect"
import { NothingWritten, Outbox, type OutboxService } from "../src/messaging/outbox/Outbox.ts"
import { Transaction } from "../src/platform/database/Transaction.ts"

const isBarest = process.env["BENCH_OUTBOX"] === "barest"

/** Built as {@link Outbox.save} builds its statement, so that only what is written differs. */
const save: OutboxService["save"] = (stream, events, write, also = () => []) =>
  Effect.flatMap(Transaction, ({ sql }) => {
    const ctes = [
      sql`written AS (${write})`,
      ...also(sql`written`).map((statement, index) => sql`${sql(`also_${index}`)} AS (${statement})`),
      ...(isBarest
        ? [
            sql`event AS (INSERT INTO bench_barest_outbox (data) SELECT ${JSON.stringify(events.map((event) => event.data))} FROM written)`
          ]
        : [])
    ]
    const [before, parameters] = sql`WITH ${sql.csv(ctes)}`.compile()
    return Effect.flatMap(
      Effect.orDie(sql.unsafe<{ readonly version: number }>(`${before} SELECT version FROM written`, parameters)),
      ([row]): Effect.Effect<number, NothingWritten> =>
        row === undefined
          ? Effect.fail(new NothingWritten({ aggregateId: stream.aggregateId }))
          : Effect.succeed(row.version)
    )
  })

Reflect.set(Outbox, "layer", Layer.succeed(Outbox, { save, append: () => Effect.void }))
await import("../src/paid-once.ts")
