/** Faults that an operator arms: they reach the processes that take faults, strike as often as was said over all of them, and no others. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { hostname } from "node:os"
import { faultPoints } from "../../src/FaultPoints.ts"
import { ArmedFaults } from "../../src/operations/faults/ArmedFaults.ts"
import * as FollowedFaults from "../../src/operations/faults/FollowedFaults.ts"
import type { FaultAction } from "../../src/platform/FaultInjection.ts"
import * as FaultInjection from "../../src/platform/FaultInjection.ts"
import { Faults } from "../../src/platform/Faults.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import * as Counters from "../support/Counters.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const operator = { actor: "ada", reason: "what happens then?" }
const point = "pay.after-charge"
const fault = (action: FaultAction, times = 1, delayMillis = 0) => ({ action, times, delayMillis })

const world = Layer.provideMerge(TestDatabase.layer, TestProcess.quiet)
const operating = ArmedFaults.layer(faultPoints).pipe(Layer.provideMerge(TestProcess.platform))

/** A process that runs with FAULTS=on, once the others see it. */
const start = Effect.gen(function* () {
  const context = yield* Layer.build(
    Layer.fresh(FollowedFaults.layer.pipe(Layer.provideMerge(operating), Layer.provideMerge(FaultInjection.layer())))
  )
  const { list } = Context.get(context, ArmedFaults)
  yield* Counters.eventually(
    "the process to be a follower",
    Effect.map(list, ({ processes }) => processes.length > 0)
  )
  return context
})

const strikes = (process: Context.Context<never>) =>
  Effect.map(
    Effect.exit(
      Effect.provideContext(
        Effect.flatMap(Faults, (faults) => faults.at(point)),
        process
      )
    ),
    Exit.isFailure
  )

/** Waits until a strike at the point fails in the process, which uses it up. */
const untilStruck = (process: Context.Context<never>) => Counters.eventually("the fault to strike", strikes(process))

const audit = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return yield* sql`
    SELECT action, subject_id AS point, actor, reason, coalesce(before ->> 'fault', 'clear') AS before,
           coalesce(after ->> 'fault', 'clear') AS after
    FROM operator_audit WHERE subject = 'fault point' ORDER BY audit_id`
})

it.live("an armed fault strikes in every process that takes faults, as often as was said over all of them", () =>
  Effect.gen(function* () {
    const [here, there] = [yield* start, yield* start]
    const faults = Context.get(here, ArmedFaults)
    yield* Counters.eventually(
      "both to be followers",
      Effect.map(faults.list, ({ processes }) => processes.length === 2)
    )
    assert.include(yield* faults.set(point, fault("fail", 3), operator), { status: "armed", changed: true })
    yield* untilStruck(here)
    yield* untilStruck(there)
    assert.deepInclude((yield* faults.list).faults[0], { point, action: "fail", times: 1, actor: "ada" })
    yield* untilStruck(here)
    assert.deepStrictEqual((yield* faults.list).faults, [])
    // Whoever comes next finds it used up.
    assert.deepStrictEqual(
      [yield* strikes(here), yield* strikes(there), yield* strikes(yield* start)],
      [false, false, false]
    )
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live(
  "each strike is on record with its process, also where its transaction rolls back, and the newest are kept",
  () =>
    Effect.gen(function* () {
      const here = yield* start
      const sql = Context.get(here, SqlClient.SqlClient)
      const { list, set } = Context.get(here, ArmedFaults)
      yield* sql`
      INSERT INTO fault_strikes (point, action, delay_millis, at, process)
      SELECT 'pay.after-intent', 'crash', 0, clock_now(), n::text FROM generate_series(1, 1100) AS n`
      yield* set(point, fault("fail", 2), operator)
      yield* untilStruck(here)
      yield* Counters.eventually(
        "the transaction to fail",
        Effect.map(
          Effect.exit(
            Transaction.run(Effect.flatMap(Faults, (points) => points.at(point))).pipe(Effect.provideContext(here))
          ),
          Exit.isFailure
        )
      )
      yield* strikes(here)
      const struck = (yield* list).strikes
      assert.deepStrictEqual(
        struck.slice(0, 3).map(({ action, point, process: by }) => [point, action, by]),
        [
          [point, "fail", `${process.pid}@${hostname()}`],
          [point, "fail", `${process.pid}@${hostname()}`],
          ["pay.after-intent", "crash", "1100"]
        ]
      )
      assert.match(struck[0]!.at, /^\d{4}-\d\d-\d\dT[\d:.]+Z$/)
      const [kept] = yield* sql<{ readonly n: number }>`SELECT count(*)::int4 AS n FROM fault_strikes`
      assert.isAtMost(kept!.n, 1_001)
    }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("a strike is used up although its transaction rolls back", () =>
  Effect.gen(function* () {
    const here = yield* start
    const faults = Context.get(here, ArmedFaults)
    yield* faults.set(point, fault("fail"), operator)
    yield* Counters.eventually(
      "the transaction to fail",
      Effect.map(
        Effect.exit(
          Transaction.run(Effect.flatMap(Faults, (points) => points.at(point))).pipe(Effect.provideContext(here))
        ),
        Exit.isFailure
      )
    )
    assert.deepStrictEqual((yield* faults.list).faults, [])
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("arming and clearing are audited once, and a clear reaches the processes", () =>
  Effect.gen(function* () {
    const here = yield* start
    const faults = Context.get(here, ArmedFaults)
    const one = fault("delay", 2, 250)
    assert.include(yield* faults.set(point, one, operator), { changed: true })
    assert.include(yield* faults.set(point, one, operator), { status: "armed", changed: false })
    assert.include(yield* faults.set(point, fault("fail", 1_000_000), operator), { changed: true })
    assert.include(yield* faults.clear(point, operator), { status: "clear", changed: true })
    assert.include(yield* faults.clear(point, operator), { status: "clear", changed: false })
    assert.isFalse(yield* strikes(here))
    const row = { point, ...operator }
    assert.deepStrictEqual(yield* Effect.provideContext(audit, here), [
      { ...row, action: "arm", before: "clear", after: "pay.after-charge=delay, 2 times, of 250 ms" },
      {
        ...row,
        action: "arm",
        before: "pay.after-charge=delay, 2 times, of 250 ms",
        after: "pay.after-charge=fail, 1000000 times"
      },
      { ...row, action: "clear", before: "pay.after-charge=fail, 1000000 times", after: "clear" }
    ])
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("a process without FAULTS=on takes none, and arming is refused where no other runs", () =>
  Effect.gen(function* () {
    const deaf = yield* Layer.build(Layer.fresh(Layer.provideMerge(FollowedFaults.layer, operating)))
    const faults = Context.get(deaf, ArmedFaults)
    const error = yield* Effect.flip(faults.set(point, fault("fail"), operator))
    assert.strictEqual(error.message, "no running process takes faults: start those that are to fail with FAULTS=on")
    const here = yield* start
    yield* faults.set(point, fault("fail"), operator)
    assert.isFalse(yield* strikes(deaf))
    yield* untilStruck(here)
  }).pipe(Effect.scoped, Effect.provide(world))
)

it.live("an unknown point, or an action that means nothing there, is refused with what there is", () =>
  Effect.gen(function* () {
    const here = yield* start
    const faults = Context.get(here, ArmedFaults)
    const unknown = yield* Effect.flip(faults.set("pay.after-charg", fault("fail"), operator))
    assert.match(unknown.message, /^there is no fault point pay\.after-charg \(pay\.after-charge\?\); there are pay\./)
    assert.strictEqual((yield* Effect.flip(faults.clear("pay.never", operator)))._tag, "FaultPointUnknown")
    const wrong: ReadonlyArray<readonly [ReturnType<typeof fault>, string]> = [
      [fault("lose-ack"), "pay.after-charge has no action lose-ack; it has crash, fail, delay"],
      [fault("delay"), "pay.after-charge needs the milliseconds of the delay"],
      [fault("fail", 1, 5), "pay.after-charge takes milliseconds for a delay alone"]
    ]
    for (const [given, message] of wrong) {
      assert.strictEqual((yield* Effect.flip(faults.set(point, given, operator))).message, message)
    }
    assert.deepStrictEqual((yield* faults.list).faults, [])
    assert.isTrue(
      faults.known.some(({ actions, point }) => point === "dispatcher.before-publish" && actions.includes("duplicate"))
    )
  }).pipe(Effect.scoped, Effect.provide(world))
)
