/**
 * What an operator has paused: topics, consumers, types of task. The table is the truth, and survives restarts; each process keeps a copy, which
 * a wake-up renews at once and a poll soon.
 *
 * The layers beside this file heed it: `PausedTopics`, `PausedConsumers`, `PausedTaskTypes`. Each decorates a service of the mechanism, which
 * knows nothing of pauses.
 */
import { Context, Effect, Latch, Layer, Schema, type Scope, Stream, SubscriptionRef } from "effect"
import { SqlClient } from "effect/sql"
import { isoTime } from "../../platform/IsoTime.ts"
import * as Rows from "../../platform/Rows.ts"
import * as Supervised from "../../platform/Supervised.ts"
import { Wakeups } from "../../platform/Wakeups.ts"

/** What can be paused. */
export const Kind = Schema.Literals(["topic", "consumer", "task type"])
export type Kind = typeof Kind.Type

/** A pause, by whom, since when and why. */
export const Pause = Schema.Struct({
  kind: Kind,
  name: Schema.String,
  pausedAt: Schema.String,
  actor: Schema.String,
  reason: Schema.String
})
export type Pause = typeof Pause.Type

/** The subject of the wake-up after a pause or its end. */
export const subject = "pauses"

/** A lost wake-up delays a pause by so much. The read is one look at a table of a few rows. */
const pollMillis = 5_000

/** More than an operator pauses by hand: a consumer, a topic and a type of task each have few names. */
const pauseLimit = 1_000

const allPauses = Rows.all(Pause)

/** All pauses, as the table has them now. */
export const read = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  allPauses(sql`
    SELECT kind, name, ${sql.literal(isoTime("paused_at"))} AS "pausedAt", actor, reason
    FROM operator_pauses ORDER BY kind, name LIMIT ${pauseLimit}`)
)

/** See {@link Pauses}. */
export interface PausesService {
  /** What is paused now, as far as this process has heard. */
  readonly all: Effect.Effect<ReadonlyArray<Pause>>
  /** The names of this kind that are paused now. */
  readonly names: (kind: Kind) => Effect.Effect<ReadonlyArray<string>>
  /** Waits until it is paused, or until it is not. */
  readonly awaitPaused: (kind: Kind, name: string, paused: boolean) => Effect.Effect<void>
  /** Runs `handle` now and after each change, while the scope is open. */
  readonly onChange: (handle: Effect.Effect<void>) => Effect.Effect<void, never, Scope.Scope>
}

const over = (pauses: SubscriptionRef.SubscriptionRef<ReadonlyArray<Pause>>): PausesService => ({
  all: SubscriptionRef.get(pauses),
  names: (kind) =>
    Effect.map(SubscriptionRef.get(pauses), (all) => all.filter((one) => one.kind === kind).map(({ name }) => name)),
  awaitPaused: (kind, name, paused) => {
    const isSo = (all: ReadonlyArray<Pause>) => all.some((one) => one.kind === kind && one.name === name) === paused
    const changed = SubscriptionRef.changes(pauses).pipe(Stream.filter(isSo), Stream.take(1), Stream.runDrain)
    // At once, as a rule.
    return Effect.flatMap(SubscriptionRef.get(pauses), (all) => (isSo(all) ? Effect.void : changed))
  },
  onChange: (handle) =>
    SubscriptionRef.changes(pauses).pipe(
      Stream.runForEach(() => handle),
      Effect.forkScoped,
      Effect.asVoid
    )
})

/** Where no layer is provided nothing is ever paused. */
export const Pauses = Context.Reference<PausesService>("paid-once/operations/Pauses", {
  defaultValue: () => over(Effect.runSync(SubscriptionRef.make<ReadonlyArray<Pause>>([])))
})

/** Follows the table for as long as the layer lives. A process that starts heeds the pauses from its first event on. */
export const layer: Layer.Layer<never, never, SqlClient.SqlClient | Wakeups | Supervised.Fibers> = Layer.effect(
  Pauses,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const wakeups = yield* Wakeups
    const readNow = Effect.orDie(Effect.provideService(read, SqlClient.SqlClient, sql))
    const due = yield* Latch.make(false)
    yield* wakeups.on(subject, () => void due.openUnsafe())
    const pauses = yield* SubscriptionRef.make(yield* readNow)
    yield* Supervised.forkLoop(
      "pauses",
      Effect.gen(function* () {
        yield* due.close
        const now = yield* readNow
        if (JSON.stringify(now) !== JSON.stringify(yield* SubscriptionRef.get(pauses))) {
          yield* SubscriptionRef.set(pauses, now)
        }
        yield* Effect.raceFirst(due.await, Effect.sleep(pollMillis))
      })
    )
    return over(pauses)
  })
)
