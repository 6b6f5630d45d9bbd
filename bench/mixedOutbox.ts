/**
 * The service with three outboxes, for `bench pay` to set what an event costs a request against: ours; none, which runs the aggregates' own
 * writes and appends nothing; and the barest, which appends a number and a text, the least that can be called an outbox. The last two announce
 * nothing, and are good for nothing else.
 */
import { Effect, Layer } from "effect"
import { NothingWritten, Outbox, type OutboxService } from "../src/outbox/Outbox.ts"
import { Transaction } from "../src/platform/Transaction.ts"
import { outboxKindOf } from "./OutboxKind.ts"

/** Builds its statement as {@link Outbox} does, so that only what is written differs. */
const saveElsewhere =
  (isBarest: boolean): OutboxService["save"] =>
  (stream, events, write, also = () => []) =>
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

const mixed = Layer.effect(
  Outbox,
  Effect.map(Outbox, (ours) => {
    const saves = { ours: ours.save, none: saveElsewhere(false), barest: saveElsewhere(true) }
    return Outbox.of({
      append: ours.append,
      save: (stream, ...rest) => saves[outboxKindOf(stream.aggregateId)](stream, ...rest)
    })
  })
).pipe(Layer.provide(Outbox.layer))

Reflect.set(Outbox, "layer", mixed)
await import("../src/paid-once.ts")
