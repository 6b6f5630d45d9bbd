/**
 * The service with three outboxes, with which `bench pay` measures the cost of events in a request. The first one is ours. The second one
 * runs the aggregates' own writes and appends nothing. The third one appends a number and a text, the smallest possible outbox row. The
 * last two publish nothing, and exist for this comparison only.
 */
import { Effect, Layer } from "effect"
import type { Statement } from "effect/sql"
import {
  type AggregateRef,
  type NewEvent,
  type NonEmpty,
  NothingWritten,
  Outbox,
  type OutboxService
} from "../src/outbox/Outbox.ts"
import { Transaction } from "../src/platform/Transaction.ts"
import { outboxKindOf } from "./OutboxKind.ts"

/** Builds its statement as {@link Outbox} does, so that only the written rows differ. */
const saveElsewhere =
  (isBarest: boolean): OutboxService["save"] =>
  <Row extends { readonly version: number }>(
    stream: AggregateRef,
    events: NonEmpty<NewEvent>,
    write: Statement.Statement<Row>,
    also: Parameters<OutboxService["save"]>[3] = () => []
  ) =>
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
        Effect.orDie(sql.unsafe<Row>(`${before} SELECT * FROM written`, parameters)),
        ([row]): Effect.Effect<Row, NothingWritten> =>
          row === undefined ? Effect.fail(new NothingWritten({ aggregateId: stream.aggregateId })) : Effect.succeed(row)
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
// By its URL: the entry point is JavaScript, and has no types.
await import(new URL("../src/paid-once.js", import.meta.url).href)
