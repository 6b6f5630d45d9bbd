/**
 * Makes a projection anew from the archive, beside the one that is read, and swaps them in one transaction, while its consumer goes on.
 *
 * 1. **Take.** One rebuild of a consumer runs at a time (Alone.ts). It deletes the leftovers of one that was cut off.
 * 2. **Fill.** Page by page, a transaction each: the events that the consumer has applied, as its cursors tell, go through the same handler into the
 *    `rebuilt` tables. `rebuild_cursors` has the versions that are in there, and commits with them.
 * 3. **Catch up.** The same with what the consumer has applied since, until that is little.
 * 4. **Swap.** One transaction: locks the live tables against writers, fills in the last events, and makes the live rows equal to the rebuilt ones.
 *
 * **No gap and no double.** A live table has the effect of exactly the versions up to its consumer's cursors, for both commit together (ApplySlice.ts);
 * the same holds for the rebuilt table and its cursors. Under the lock everybody who has written the live table has committed, so his cursors are seen;
 * then the rebuild's cursors are brought up to them. A slice under way that has not written yet waits at the table, and adds its events after the swap
 * to what the swap has left. One that never writes the table has no effect to lose.
 *
 * A rebuild that is killed leaves the live tables as they were: the swap alone touches them. The next rebuild starts anew, for the handler may have
 * changed since.
 */
import { PgClient } from "@effect/sql-pg"
import { Array, Context, Effect, Layer, Option, Schema } from "effect"
import { SqlError } from "effect/sql"
import * as Backoff from "../../platform/Backoff.ts"
import { innermost } from "../../platform/Innermost.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import * as OperatorAudit from "../../platform/OperatorAudit.ts"
import { RandomUuid } from "../../platform/RandomUuid.ts"
import { isTransient, Transaction } from "../../platform/Transaction.ts"
import * as Alone from "./Alone.ts"
import * as AppliedRuns from "./AppliedRuns.ts"
import type { Projection } from "./Projection.ts"
import * as RebuildRow from "./RebuildRow.ts"
import * as Swap from "./Swap.ts"

/** Aggregates that are looked up at once: their cursors are some hundred kilobytes. */
const aggregatesAtOnce = 1_000

/** The swap takes up to so many events under its lock: well below a second. With more it lets the consumer go on, and catches up first. */
const swapVersions = 5_000

/** Swaps that are tried. After the last one it gives up: the consumer is faster than the rebuild, or a writer does not end. */
const swapAttempts = 50

/** How far a rebuild is. */
export interface Progress {
  /** `cleaning` deletes the rows that an earlier rebuild has left, `emptying` this one's own at its end. */
  readonly phase: "cleaning" | "filling" | "swapping" | "emptying"
  /** Events that are in the new tables. */
  readonly done: number
  /** Events that the consumer has applied, as far as it is known. */
  readonly total: number
  readonly perSecond: number
  /** At the rate so far; null before there is one. */
  readonly secondsLeft: number | null
}

/** A rebuild that is done. */
export interface Rebuilt {
  readonly consumer: string
  readonly events: number
  readonly seconds: number
  readonly tables: ReadonlyArray<Swap.Corrected>
}

/** A rebuild of this consumer is under way in another process. */
export class RebuildUnderWay extends Schema.TaggedError<RebuildUnderWay>()("RebuildUnderWay", {
  consumer: Schema.String,
  /** Since when, and by whom, in words. */
  begun: Schema.String
}) {
  override get message() {
    return `${this.consumer} is being rebuilt already${this.begun}: one rebuild runs at a time`
  }
}

/** The archive lacks events that the consumer has applied: a rebuild would lose their effect. The live tables are as they were. */
export class EventsMissing extends Schema.TaggedError<EventsMissing>()("EventsMissing", {
  consumer: Schema.String,
  /** The first of them. */
  events: Schema.NonEmptyArray(
    Schema.Struct({ aggregateType: Schema.String, aggregateId: Schema.String, version: Schema.Int })
  ),
  /** The time of the archive's first event; null without one. */
  oldest: Schema.NullOr(Schema.String)
}) {
  override get message() {
    const { consumer, events, oldest } = this
    const named = events.map(
      ({ aggregateId, aggregateType, version }) => `${aggregateType} ${aggregateId} version ${version}`
    )
    return (
      `${consumer} can't be rebuilt: it has applied events that the archive does not have, ${named.join(", ")} first. ` +
      (oldest === null ? "The archive is empty" : `The archive begins with an event of ${oldest}`) +
      ". Where the topic still has them, paid-once archive refill fills them in: a projection that is to be rebuilt needs them all, and so " +
      "OUTBOX_ARCHIVE=on and OUTBOX_RETENTION_DAYS=0"
    )
  }
}

/** The rebuild can't be made or finished. The live tables are as they were. */
export class RebuildFailed extends Schema.TaggedError<RebuildFailed>()("RebuildFailed", {
  consumer: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `${this.consumer} is not rebuilt: ${this.reason}`
  }
}

export type RebuildRefused = RebuildUnderWay | EventsMissing | RebuildFailed

export class Rebuild extends Context.Service<
  Rebuild,
  {
    /**
     * Makes the projection anew, and tells how far it is after each page. It returns after the swap has committed, with its audit, and the rebuilt
     * tables are empty again. Memory is that of one page.
     */
    readonly run: (
      projection: Projection,
      operator: OperatorAudit.Operator,
      tell: (progress: Progress) => Effect.Effect<void>
    ) => Effect.Effect<Rebuilt, RebuildRefused>
  }
>()("paid-once/operations/Rebuild") {
  static readonly layer: Layer.Layer<Rebuild, never, PgClient.PgClient> = Layer.effect(
    Rebuild,
    Effect.gen(function* () {
      const client = yield* PgClient.PgClient
      const drawUuid = yield* RandomUuid
      const onDatabase = <A, E>(effect: Effect.Effect<A, E, PgClient.PgClient>) =>
        Effect.provideService(effect, PgClient.PgClient, client)
      const transact = <A, E>(effect: Effect.Effect<A, E, Transaction>) => onDatabase(Transaction.run(effect))
      return Rebuild.of({
        run: Effect.fn("Rebuild.run")(function* (projection, operator, tell) {
          const consumer = projection.subscriber.name
          const rebuild = make({ projection, operator, tell, id: drawUuid(), transact })
          const done = yield* onDatabase(Alone.run(`rebuild of ${consumer}`, rebuild)).pipe(
            Effect.catchIf(SqlError.isSqlError, Effect.die)
          )
          if (Option.isSome(done)) return done.value
          const other = yield* transact(RebuildRow.find(consumer))
          const begun = other === undefined ? "" : `, since ${other.begunAt} by ${other.actor}`
          return yield* new RebuildUnderWay({ consumer, begun })
        })
      })
    })
  )
}

interface Work {
  readonly projection: Projection
  readonly operator: OperatorAudit.Operator
  readonly tell: (progress: Progress) => Effect.Effect<void>
  /** The fencing token. */
  readonly id: string
  readonly transact: <A, E>(effect: Effect.Effect<A, E, Transaction>) => Effect.Effect<A, Exclude<E, SqlError.SqlError>>
}

/** The rebuild, to be run under its lock. */
const make = ({ id, operator, projection, tell, transact }: Work) =>
  Effect.gen(function* () {
    const { name: consumer, topic } = projection.subscriber
    const began = yield* Monotonic.millis
    const state = { done: 0, total: 0 }
    const failed = (reason: string) => new RebuildFailed({ consumer, reason })

    const progress = Effect.fnUntraced(function* (phase: Progress["phase"]) {
      const seconds = ((yield* Monotonic.millis) - began) / 1_000
      const perSecond = Math.round(state.done / Math.max(seconds, 0.001))
      const left = Math.max(0, state.total - state.done)
      yield* tell({ phase, ...state, perSecond, secondsLeft: perSecond === 0 ? null : Math.ceil(left / perSecond) })
    })

    /** A transaction of this rebuild: it does nothing once another one has begun. */
    const ours = <A, E>(effect: Effect.Effect<A, E, Transaction>) =>
      transact(
        Effect.gen(function* () {
          if (!(yield* RebuildRow.hold(consumer, id, state))) {
            return yield* failed("another rebuild took over, for this one had lost its connection")
          }
          return yield* effect
        })
      )

    const clean = Effect.fnUntraced(function* (phase: "cleaning" | "emptying") {
      while (true) {
        const rows = yield* ours(
          Effect.zipWith(Swap.clean(projection), RebuildRow.clean(consumer), (some, more) => some + more)
        )
        if (rows === 0) return
        yield* progress(phase)
      }
    })

    /** The effect of one page, in the present transaction. Returns what is left of the runs. */
    const page = Effect.fnUntraced(function* (runs: ReadonlyArray<AppliedRuns.Run>) {
      const { covered, events, missing, rest } = yield* AppliedRuns.read(consumer, topic, runs)
      if (Array.isReadonlyArrayNonEmpty(missing)) {
        return yield* new EventsMissing({ consumer, events: missing, oldest: (yield* AppliedRuns.oldest) ?? null })
      }
      if (Array.isReadonlyArrayNonEmpty(events)) {
        yield* Effect.catch(projection.handleMany(events), (error) =>
          isTransient(error) ? Effect.die(error) : failed(`its handler failed: ${innermost(error)}`)
        )
      }
      yield* RebuildRow.advance(consumer, covered)
      return { rest, versions: AppliedRuns.versionsOf(covered) }
    })

    /** All pages of these runs, a transaction each. */
    const pages = Effect.fnUntraced(function* (runs: ReadonlyArray<AppliedRuns.Run>) {
      let rest = runs
      while (rest.length > 0) {
        const step = yield* ours(page(rest))
        rest = step.rest
        state.done += step.versions
        yield* progress("filling")
      }
    })

    const fill = Effect.gen(function* () {
      let last = { aggregateId: "", aggregateType: "" }
      while (true) {
        // In the order of their ids: where these begin with a time, the aggregates that retention has hit come first.
        const runs = yield* transact(AppliedRuns.nextAggregates(consumer, last, aggregatesAtOnce))
        yield* pages(runs)
        if (runs.length < aggregatesAtOnce) return
        last = runs.at(-1)!
      }
    })

    const catchUp = Effect.gen(function* () {
      while (true) {
        const runs = yield* transact(AppliedRuns.behind(consumer, swapVersions))
        state.total = Math.max(state.total, state.done + AppliedRuns.versionsOf(runs))
        yield* pages(runs)
        if (runs.length < swapVersions) return
      }
    })

    /** The last events, under the lock of the swap: a statement behind the lock sees all that was committed before it was granted. */
    const last = Effect.gen(function* () {
      let rest = yield* AppliedRuns.behind(consumer, swapVersions)
      const versions = AppliedRuns.versionsOf(rest)
      if (versions >= swapVersions) return yield* new Swap.Busy()
      while (rest.length > 0) rest = (yield* page(rest)).rest
      return versions
    })

    /** The swap. {@link Swap.Busy} where it has to be tried again, and has changed nothing. */
    const swap = ours(
      Effect.gen(function* () {
        const { filled, tables } = yield* Swap.run(projection, last)
        const events = state.done + filled
        yield* OperatorAudit.record({
          ...operator,
          action: "rebuild",
          subject: "consumer",
          subjectId: consumer,
          before: {},
          after: { events, tables }
        })
        const { afterCommit } = yield* Transaction
        yield* afterCommit(OperatorAudit.log(operator, `rebuilt ${consumer} from ${events} events`))
        return { events, tables }
      })
    )

    const swapped = Effect.gen(function* () {
      for (let failures = 1; failures <= swapAttempts; failures++) {
        yield* catchUp
        yield* progress("swapping")
        const result = yield* Effect.catchTag(swap, "Busy", () => Effect.undefined)
        if (result !== undefined) return result
        yield* Effect.sleep(yield* Backoff.millisAfter(Backoff.swap, failures))
      }
      return yield* failed(
        "its tables are written without a pause: a transaction on them does not end, or the consumer is faster"
      )
    })

    if (projection.subscriber.firstSight !== "from-version-1") {
      return yield* failed("it begins at any version, and nothing says at which it began")
    }
    yield* transact(RebuildRow.take(consumer, id, operator.actor))
    if (!(yield* transact(Swap.areAlike(projection)))) {
      return yield* failed("the columns of its tables and of those beside them differ: a migration has to change both")
    }
    yield* clean("cleaning")
    state.total = yield* transact(RebuildRow.applied(consumer))
    yield* progress("filling")
    const end = Effect.andThen(clean("emptying"), ours(RebuildRow.drop(consumer)))
    // The rows of a refused rebuild are of no use. One that is killed leaves its rows to the next.
    const result = yield* Effect.tapError(Effect.andThen(fill, swapped), () => Effect.ignore(end))
    yield* end
    const seconds = ((yield* Monotonic.millis) - began) / 1_000
    const rebuilt: Rebuilt = { consumer, ...result, seconds }
    return rebuilt
  })
