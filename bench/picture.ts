/**
 * `npm run bench`: the whole picture, within ten minutes. `--quick` takes 90 seconds, and `--full` as long as it needs.
 *
 * All contenders run on one Postgres and one Kafka, in turns. The figures are printed in one table, each beside a peer's from the same run and
 * beside its limit. A missed limit is a result, and the exit status stays 0. It is 1 if one of our own events was lost or overtaken.
 */
import { Cause, Console, Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { writeFileSync } from "node:fs"
import { innermost } from "../src/platform/Innermost.ts"
import { environment } from "./Flags.ts"
import type { Setting } from "./outside/Processes.ts"
import { setUp } from "./outside.ts"
import * as History from "./picture/History.ts"
import * as Loads from "./picture/Loads.ts"
import * as Plan from "./picture/Plan.ts"
import * as Rows from "./picture/Rows.ts"
import * as Scenes from "./picture/Scenes.ts"
import { chart } from "./picture/Svg.ts"

const file = (name: string, what: string) =>
  Flag.String(name).pipe(Flag.withDescription(`a file for ${what}`), Flag.optional)

const flags = {
  quick: Flag.Boolean("quick").pipe(Flag.withDescription("what matters most, in 90 s"), Flag.withDefault(false)),
  full: Flag.Boolean("full").pipe(
    Flag.withDescription("all rates, peers and ten million archived rows, without a limit of time"),
    Flag.withDefault(false)
  ),
  json: file("json", "all figures"),
  svg: file("svg", "the chart"),
  compare: Flag.Boolean("compare").pipe(
    Flag.withDescription("name what is worse than in the last run on this machine"),
    Flag.withDefault(true)
  )
}

/** Which of the three pictures is asked for. */
export const modeOf = ({ full, quick }: { readonly quick: boolean; readonly full: boolean }): Plan.Mode =>
  quick ? "quick" : full ? "full" : "usual"

/** What a scene came to; a string says why it did not run, or what broke in it. */
interface Result {
  readonly scene: Plan.Scene
  readonly outcome: Scenes.Outcome | string
  readonly load?: Loads.Load
}

const oneScene = Effect.fnUntraced(function* (scene: Plan.Scene, setting: Setting, loads: ReadonlyArray<Loads.Load>) {
  if (scene.kind !== "load") return { outcome: yield* Scenes.run(scene, setting) }
  const load = yield* Loads.run(scene, setting)
  // The scene of the other contenders is read beside ours at the same rate.
  const ours = [load, ...loads.filter(({ isReached, rate }) => isReached && rate === load.rate)]
    .flatMap(({ entries }) => entries)
    .find(({ isOurs }) => isOurs)
  return { load, outcome: { text: Loads.print(load), rows: Loads.rows(load, ours), data: load } }
})

/** Runs the scenes one after the other, and tells each one's outcome. A scene that would not end in time is left out. */
export const picture = Effect.fnUntraced(function* (scenes: ReadonlyArray<Plan.Scene>, limitSeconds: number) {
  // The start of Postgres and Kafka is a part of the time.
  const left = () => limitSeconds - performance.now() / 1_000
  const contenders = new Set(scenes.flatMap((scene) => ("contenders" in scene ? scene.contenders : [])))
  const setting = yield* setUp([...contenders])
  const results: Array<Result> = []
  const tell = (result: Result) => {
    results.push(result)
    return Console.log(`${textOf(result)}\n`)
  }
  for (const scene of scenes) {
    if (left() < scene.about) {
      yield* tell({ scene, outcome: "left out, for want of time" })
      continue
    }
    yield* Effect.logInfo(`${scene.title}, some ${Math.ceil(scene.about)} s`)
    const loads = results.flatMap(({ load }) => load ?? [])
    const result = yield* oneScene(scene, setting, loads).pipe(
      Effect.catchCause((cause) => Effect.succeed({ outcome: `FAILED: ${innermost(Cause.squash(cause))}` }))
    )
    yield* tell({ scene, ...result })
  }
  return results
})

const textOf = ({ outcome, scene }: Result): string =>
  typeof outcome === "string" ? `${scene.title}: ${outcome}` : outcome.text

/** The chart's groups: one for each rate with the usual events. */
const groupsOf = (loads: ReadonlyArray<Loads.Load>) => {
  const usual = loads.filter(({ rate, title }) => title.replace(/, others$/, "") === `${rate}/s`)
  return [...new Set(usual.map(({ rate }) => rate))]
    .toSorted((one, other) => one - other)
    .map((rate) =>
      Loads.group(
        rate,
        usual.filter((load) => load.rate === rate)
      )
    )
}

/** Runs, prints, and writes what the flags ask for. */
export const run = Effect.fnUntraced(function* (options: {
  readonly quick: boolean
  readonly full: boolean
  readonly json: Option.Option<string>
  readonly svg: Option.Option<string>
  readonly compare: boolean
}) {
  const mode = modeOf(options)
  const results = yield* picture(Plan.plans[mode], Plan.modes[mode].limitSeconds)
  const rows = results.flatMap(({ outcome }) => (typeof outcome === "string" ? [] : outcome.rows))
  const now: History.Run = { at: new Date().toISOString(), machine: History.machine(), rows }
  const last = History.load(mode)
  const failures = results.filter(({ outcome }) => typeof outcome === "string" && outcome.startsWith("FAILED"))

  yield* Console.log(
    [
      Rows.print(rows),
      "",
      Rows.summary(rows),
      ...failures.map(textOf),
      ...(options.compare ? ["", History.print(last, now)] : []),
      `${Math.round(performance.now() / 1_000)} s in all.`
    ].join("\n")
  )
  yield* Effect.sync(() => {
    // A run that broke is nothing to compare the next one with.
    if (failures.length === 0) History.save(mode, now)
    if (Option.isSome(options.json)) {
      const scenes = results.map(({ outcome, scene: { title } }) => ({
        title,
        outcome: typeof outcome === "string" ? outcome : outcome.data
      }))
      writeFileSync(options.json.value, `${JSON.stringify({ mode, ...now, scenes }, undefined, 1)}\n`)
    }
    if (Option.isSome(options.svg)) {
      writeFileSync(options.svg.value, chart(groupsOf(results.flatMap(({ load }) => load ?? []))))
    }
  })
  if (failures.length > 0) return yield* Effect.die(new Error(failures.map(textOf).join("\n")))
})

/** `bench` without a subcommand. */
export const command = Command.make(
  "bench",
  flags,
  Effect.fnUntraced(function* (options) {
    const logical = Plan.needsLogical(Plan.plans[modeOf(options)])
    yield* Effect.provide(Effect.scoped(run(options)), environment({ kafka: true, logical }))
  })
).pipe(
  Command.withDescription("The whole picture within ten minutes, or one part of it: figures as ratios within one run")
)
