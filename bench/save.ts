/**
 * `bench save`: the cost of an event for its writer. Eight clients, which use all cores, run transactions of one kind for a block, and the
 * kinds take turns:
 *
 * - the aggregate's UPDATE alone, in the driver's transaction and in ours;
 * - UPDATE and event in one statement (`Outbox.save`), and in two (`Outbox.append`);
 * - for comparison the usual code of articles, and the smallest possible outbox row.
 */
import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Random } from "effect"
import { Transaction } from "../src/platform/Transaction.ts"
import * as Aggregates from "./Aggregates.ts"
import * as Cpu from "./Cpu.ts"
import { Environment } from "./Environment.ts"
import { interval, median, quantile, show, spread, table } from "./Figures.ts"
import * as Service from "./Service.ts"
import { reset } from "./Workload.ts"

const kinds = [
  "UPDATE alone, the driver's transaction",
  "UPDATE alone",
  "UPDATE and event, one statement",
  "UPDATE and event, two statements",
  "UPDATE and the usual outbox row",
  "UPDATE and the barest row, one statement"
] as const

/** The times of `count` transactions of each client, in milliseconds. */
const block = <E, R>(
  clients: number,
  count: number,
  ids: ReadonlyArray<string>,
  transaction: (id: string) => Effect.Effect<void, E, R>
) =>
  Effect.gen(function* () {
    const millis: Array<number> = []
    const before = yield* Cpu.sample
    const client = Effect.gen(function* () {
      for (let done = 0; done < count; done++) {
        const id = ids[yield* Random.nextIntBetween(0, ids.length - 1)]!
        const started = performance.now()
        yield* transaction(id)
        millis.push(performance.now() - started)
      }
    })
    yield* Effect.all(
      Array.from({ length: clients }, () => client),
      { concurrency: clients, discard: true }
    )
    const { node, postgres = Number.NaN } = Cpu.between(before, yield* Cpu.sample)
    return {
      p50: quantile(millis, 0.5),
      nodeMicros: (node / millis.length) * 1e6,
      postgresMicros: (postgres / millis.length) * 1e6
    }
  })

/** Runs `rounds` rounds of blocks with `transactions` transactions a client. */
export const save = Effect.fnUntraced(
  function* (options: { readonly rounds: number; readonly transactions: number; readonly clients: number }) {
    const ids = yield* Aggregates.make
    const { clients, transactions } = options
    const { databaseUrl } = yield* Environment
    // With as many connections as the other pool, which is idle meanwhile.
    const driver = Context.get(
      yield* Layer.build(PgClient.layer({ url: databaseUrl, maxConnections: 16 })),
      PgClient.PgClient
    )
    const blocks = [
      block(clients, transactions, ids, (id) => driver.withTransaction(Aggregates.updateOn(driver, id))),
      block(clients, transactions, ids, (id) => Transaction.run(Aggregates.update(id))),
      block(clients, transactions, ids, (id) => Transaction.run(Aggregates.save(id))),
      block(clients, transactions, ids, (id) => Transaction.run(Aggregates.updateAndAppend(id))),
      block(clients, transactions, ids, (id) => Transaction.run(Aggregates.updateAndUsual(id))),
      block(clients, transactions, ids, (id) => Transaction.run(Aggregates.updateAndBarest(id)))
    ]
    const order = kinds.map((_, kind) => kind)
    const round = Effect.gen(function* () {
      const measured: Array<Effect.Success<(typeof blocks)[number]>> = []
      for (const kind of order) measured[kind] = yield* blocks[kind]!
      // Each kind goes first equally often: the first one finds the tables empty, and writes whole pages after the checkpoint.
      order.push(order.shift()!)
      return measured
    })
    yield* round
    const rounds = yield* Effect.forEach(Array.from({ length: options.rounds }), () => Effect.andThen(reset, round))
    const column = (index: number) => rounds.map((blocks) => blocks[index]!)
    return {
      workload: options,
      kinds: kinds.map((name, index) => ({
        name,
        p50Millis: spread(column(index).map(({ p50 }) => p50)),
        // Within each round, so that a slow minute affects both.
        ratio: interval(column(index).map(({ p50 }, round) => p50 / (rounds[round]?.[0]?.p50 ?? Number.NaN))),
        ratioOfOurs: interval(column(index).map(({ p50 }, round) => p50 / (rounds[round]?.[1]?.p50 ?? Number.NaN))),
        nodeMicros: median(column(index).map(({ nodeMicros }) => nodeMicros)),
        postgresMicros: median(column(index).map(({ postgresMicros }) => postgresMicros))
      }))
    }
  },
  Effect.provide(Layer.fresh(Service.writer))
)

/** The result for a reader. */
export const print = ({ kinds, workload }: Effect.Success<ReturnType<typeof save>>): string =>
  [
    `${workload.rounds} rounds, ${workload.clients} clients, ${workload.transactions} transactions a client and block: p50 of a transaction, median of the rounds (least … most; of the ratios, where the median is, with 95 % confidence)`,
    "",
    table(
      ["", "p50 ms", "of the first", "of the second", "Node µs", "Postgres µs"],
      kinds.map(({ name, nodeMicros, p50Millis, postgresMicros, ratio, ratioOfOurs }) => [
        name,
        show(p50Millis, 3),
        show(ratio, 3),
        show(ratioOfOurs, 3),
        nodeMicros.toFixed(0),
        postgresMicros.toFixed(0)
      ])
    )
  ].join("\n")
