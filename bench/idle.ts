/** `bench idle`: the cost of an idle dispatcher, in Node and in Postgres, as a share of one core. */
import { Effect } from "effect"
import { laneCount } from "../src/outbox/Lane.ts"
import { LaneWorkers } from "../src/outbox/LaneWorkers.ts"
import { Publisher } from "../src/outbox/Publisher.ts"
import * as Cpu from "./Cpu.ts"
import * as Service from "./Service.ts"
import { topic, until } from "./Workload.ts"

const share = (seconds: number) =>
  Effect.gen(function* () {
    const before = yield* Cpu.sample
    yield* Effect.sleep(seconds * 1_000)
    const used = Cpu.between(before, yield* Cpu.sample)
    return { node: used.node / seconds, postgres: (used.postgres ?? Number.NaN) / seconds }
  })

/** Measures `seconds` without a dispatcher, and as long with one that owns all lanes. */
export const idle = Effect.fnUntraced(function* ({ seconds }: { readonly seconds: number }) {
  const without = yield* share(seconds)
  const withDispatcher = yield* Effect.gen(function* () {
    const workers = yield* LaneWorkers
    yield* (yield* Publisher).prepare(topic)
    yield* until(Effect.map(workers.lanes, (held) => held.length === laneCount))
    // Connecting, compiling and the first polls end within this time.
    yield* Effect.sleep("3 seconds")
    return yield* share(seconds)
  }).pipe(Effect.provide(Service.dispatcher({ archive: true })))
  return { seconds, without, withDispatcher }
})

const percent = (value: number) => `${(value * 100).toFixed(2)} %`

/** The result for a reader. */
export const print = ({ seconds, without, withDispatcher }: Effect.Success<ReturnType<typeof idle>>): string =>
  `an idle dispatcher over ${seconds} s: Node ${percent(withDispatcher.node)} and Postgres ${percent(withDispatcher.postgres)} of a core ` +
  `(without it: ${percent(without.node)} and ${percent(without.postgres)})`
