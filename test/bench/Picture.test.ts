/** The parts of the benchmarks that only calculate: quantiles, verdicts, the comparison with the last run, recoveries, and the chart. */
import { assert, describe, it } from "@effect/vitest"
import { quantile } from "../../bench/Figures.ts"
import * as Arrivals from "../../bench/outside/Arrivals.ts"
import { shapeHere, usual, variablesOf } from "../../bench/outside/OpenLoop.ts"
import { recoveryOf } from "../../bench/outside/Recovery.ts"
import { quantilesOf } from "../../bench/outside/Steady.ts"
import * as History from "../../bench/picture/History.ts"
import * as Loads from "../../bench/picture/Loads.ts"
import * as Plan from "../../bench/picture/Plan.ts"
import * as Rows from "../../bench/picture/Rows.ts"
import { chart, type Group } from "../../bench/picture/Svg.ts"

const latencyRow = (ours: ReadonlyArray<number>, theirs: ReadonlyArray<number>): Rows.Row => ({
  what: "500/s warm: p99",
  unit: "ms",
  ours,
  peer: "simplest",
  theirs,
  limit: { bound: "most", ratio: 1.2 }
})
const rateRow = (ours: ReadonlyArray<number>, theirs: ReadonlyArray<number>): Rows.Row => ({
  what: "drain",
  unit: "/s",
  ours,
  peer: "simplest",
  theirs,
  limit: { bound: "least", ratio: 1.2 }
})

describe("figures", () => {
  it("a quantile lies between two values in proportion, and the last one is the most", () => {
    const millis = Array.from({ length: 101 }, (_, index) => 100 - index)
    assert.deepStrictEqual(quantilesOf(millis), { p50: 50, p95: 95, p99: 99, p999: 99.9, max: 100 })
    assert.strictEqual(quantile([1, 2], 0.25), 1.25)
  })

  it("a number keeps three significant figures", () => {
    assert.deepStrictEqual([0, 0.01234, 1.234, 56.78, 12_345, Number.NaN].map(Rows.value), [
      "0",
      "0.0123",
      "1.23",
      "56.8",
      "12345",
      "–"
    ])
  })
})

describe("verdicts", () => {
  it("a limit holds by the median of the rounds' ratios, not by the ratio of the medians", () => {
    // Ratios 1, 1, 9: the medians alone would give 3.
    assert.isTrue(Rows.holds(latencyRow([1, 3, 9], [1, 3, 1])))
    assert.isFalse(Rows.holds(latencyRow([13], [10])))
  })

  it("more is better where the unit is a rate", () => {
    assert.isTrue(Rows.holds(rateRow([130], [100])))
    assert.isFalse(Rows.holds(rateRow([110], [100])))
  })

  it("the table and the summary name a missed limit plainly", () => {
    const rows = [latencyRow([20], [10]), rateRow([130], [100])]
    assert.match(Rows.print(rows), /p99, ms .*2\.00 .*≤ 1\.2 +MISSED/)
    assert.strictEqual(Rows.summary(rows), "1 of 2 limits hold. Missed: 500/s warm: p99 2.00.")
  })
})

describe("the comparison with the last run", () => {
  const runOf = (rows: ReadonlyArray<Rows.Row>, machine = "here"): History.Run => ({ at: "yesterday", machine, rows })

  it("a figure is worse where no round is as good as the worst one before", () => {
    const last = runOf([latencyRow([10, 12], [10, 10])])
    assert.lengthOf(History.regressions(last, runOf([latencyRow([15, 16], [10, 10])])), 1)
    assert.lengthOf(History.regressions(last, runOf([latencyRow([11.9, 30], [10, 10])])), 0)
  })

  it("a lower rate is worse, and a higher one is not", () => {
    const last = runOf([rateRow([200], [100])])
    assert.lengthOf(History.regressions(last, runOf([rateRow([120], [100])])), 1)
    assert.lengthOf(History.regressions(last, runOf([rateRow([400], [100])])), 0)
  })

  it("a little is no regression, and neither is a slow minute that both share", () => {
    const last = runOf([latencyRow([10], [10])])
    assert.lengthOf(History.regressions(last, runOf([latencyRow([11], [10])])), 0)
    assert.lengthOf(History.regressions(last, runOf([latencyRow([40], [40])])), 0)
  })

  it("runs of two machines are not compared", () => {
    const last = runOf([latencyRow([10], [10])], "there")
    const now = runOf([latencyRow([90], [10])])
    assert.lengthOf(History.regressions(last, now), 0)
    assert.include(History.print(last, now), "another machine")
  })

  it("names the figure with both ratios", () => {
    const text = History.print(runOf([latencyRow([10], [10])]), runOf([latencyRow([90], [10])]))
    assert.include(text, "500/s warm: p99, beside simplest: 1.00 (1.00 … 1.00) → 9.00 (9.00 … 9.00)")
  })
})

describe("the reader's checks", () => {
  const after = (...events: ReadonlyArray<readonly [aggregateId: string, version: number]>) => {
    const arrivals = Arrivals.make()
    const isNew = events.map(([aggregateId, version]) => arrivals.note(aggregateId, version))
    return { isNew, gaps: arrivals.gaps(), duplicates: arrivals.duplicates(), overtaken: arrivals.overtaken() }
  }

  it("an event that a later one of its aggregate has overtaken is new, and counted", () => {
    const seen = after(["a", 1], ["a", 3], ["b", 1], ["a", 2])
    assert.deepStrictEqual(seen, { isNew: [true, true, true, true], gaps: 0, duplicates: 0, overtaken: 1 })
  })

  it("an event that never comes is a gap", () => {
    assert.strictEqual(after(["a", 3]).gaps, 2)
  })

  it("an event that comes again is a duplicate, also one that was overtaken", () => {
    const seen = after(["a", 1], ["a", 1], ["a", 3], ["a", 2], ["a", 2])
    assert.deepStrictEqual(seen, { isNew: [true, false, true, true, false], gaps: 0, duplicates: 2, overtaken: 1 })
  })
})

describe("a recovery", () => {
  it("tells when the flow was back, when its backlog was gone, and the longest wait", () => {
    // Committed each 100 ms. From 250 ms on nothing arrives until 900 ms, but for an event that was late before.
    const committed = [0, 100, 120, 300, 400, 500, 1_000]
    const arrived = [5, 105, 260, 900, 905, 910, 1_005]
    assert.deepStrictEqual(recoveryOf(committed, arrived, 250), {
      held: 4,
      longestMillis: 600,
      backMillis: 650,
      goneMillis: 660
    })
  })

  it("nothing was held where nothing waited", () => {
    assert.deepStrictEqual(recoveryOf([0, 100], [5, 105], 50), {
      held: 0,
      longestMillis: 0,
      backMillis: 0,
      goneMillis: 0
    })
  })
})

describe("the plan", () => {
  it("the scenes of a bounded picture fit into its time, by their own estimates", () => {
    for (const mode of ["quick", "usual"] as const) {
      const about = Plan.plans[mode].reduce((sum, scene) => sum + scene.about, 0)
      assert.isAtMost(about, Plan.modes[mode].limitSeconds, mode)
    }
  })

  it("the full picture has every peer, every rate, and ten million archived rows", () => {
    const loads = Plan.plans.full.flatMap((scene) => (scene.kind === "load" ? [scene] : []))
    assert.deepStrictEqual(
      [...new Set(loads.map(({ rate }) => rate))].toSorted((a, b) => a - b),
      [100, 500, 2_000, 5_000]
    )
    assert.isAtLeast(new Set(loads.flatMap(({ contenders }) => contenders)).size, 8)
    assert.isTrue(loads.some(({ archived }) => archived === 10_000_000))
    assert.isTrue(Plan.needsLogical(Plan.plans.full))
  })

  it("the shape of a load reaches the writer's process", () => {
    const shape = { aggregates: 4, dataBytes: 4_096, connections: 2 }
    const before = process.env["LOAD_SHAPE"]
    assert.deepStrictEqual(shapeHere(), usual)
    Object.assign(process.env, variablesOf(shape))
    assert.deepStrictEqual(shapeHere(), shape)
    if (before === undefined) delete process.env["LOAD_SHAPE"]
  })
})

describe("a rate", () => {
  const round = (cold: number, warm: number) => ({
    cold: { committedPerSecond: cold },
    warm: { committedPerSecond: warm }
  })

  it("is reached where one contender's writer reaches it in all of its rounds", () => {
    assert.isTrue(Loads.isReached(2_000, [[], []]))
    assert.isTrue(Loads.isReached(2_000, [[round(1_999, 1_400), round(1_950, 1_950)], [round(900, 900)]]))
    assert.isFalse(Loads.isReached(2_000, [[round(1_990, 1_990), round(1_070, 1_990)], [round(900, 900)]]))
    assert.isFalse(Loads.isReached(2_000, [[round(1_990, 1_399)], [round(1_399, 1_990)]]))
  })

  it("that was not reached has a table that says so, and no figure beside a limit", () => {
    const load: Loads.Load = { title: "2000/s", rate: 2_000, isLimited: true, isReached: false, entries: [] }
    assert.include(Loads.print(load), "No writer reached 1400/s")
    const ours = { name: "ours", key: "ours", isOurs: true, rounds: [] }
    assert.deepStrictEqual(Loads.rows({ ...load, entries: [{ ...ours, isOurs: false }] }, ours), [])
    assert.lengthOf(Loads.rows({ ...load, isReached: true, entries: [{ ...ours, isOurs: false }] }, ours), 6)
    assert.notInclude(Loads.print({ ...load, isReached: true }), "No writer")
    const phase = {
      committedPerSecond: 900,
      late: 0,
      events: 1,
      fromCommit: quantilesOf([1]),
      cpu: { relay: 1, postgres: 1 }
    }
    // The chart reads no more of a round.
    const entry = { ...ours, rounds: [{ overtaken: 0, warm: phase }] } as unknown as Loads.Entry
    const noteOf = (isReached: boolean) => Loads.group(2_000, [{ ...load, isReached, entries: [entry] }]).bars[0]?.note
    assert.deepStrictEqual([noteOf(false), noteOf(true)], ["rate not reached", undefined])
  })
})

describe("the chart", () => {
  const latency = { p50: 2, p95: 4, p99: 8, p999: 16, max: 32 }
  const groups: ReadonlyArray<Group> = [
    {
      title: "500 events a second",
      bars: [
        { name: "ours", isOurs: true, latency, cpu: { relay: 300, postgres: 200 } },
        {
          name: "a & b",
          isOurs: false,
          latency: { ...latency, p50: 50, max: 900 },
          cpu: { relay: 100, postgres: 900 },
          note: "3 overtaken"
        }
      ]
    }
  ]
  const svg = chart(groups)

  it("has colours for light and dark pages, a row for each contender, and its note", () => {
    assert.include(svg, "prefers-color-scheme: dark")
    for (const text of ["ours", "a &amp; b", "500 events a second", "3 overtaken"]) assert.include(svg, `>${text}<`)
    assert.notMatch(svg, /NaN|Infinity|undefined/)
  })

  it("a slower contender lies further right, and a dearer one is longer", () => {
    const dots = [...svg.matchAll(/<circle class="(?:ours|peer)" cx="([\d.]+)"/g)].map((match) => Number(match[1]))
    assert.isBelow(dots[0]!, dots[1]!)
    const bars = [...svg.matchAll(/<rect[^>]* width="([\d.]+)"/g)].map((match) => Number(match[1]))
    assert.closeTo(bars[0]! / bars[2]!, 3, 0.1)
  })

  it("everything lies within the picture", () => {
    const height = Number(/viewBox="0 0 960 (\d+)"/.exec(svg)?.[1])
    for (const [, axis, at] of svg.matchAll(/ (x|y|x1|x2|cx|y1|y2|cy)="([\d.]+)"/g)) {
      assert.isAtMost(Number(at), axis!.includes("y") ? height : 960)
    }
  })
})
