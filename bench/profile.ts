/**
 * `bench profile`: where the CPU of a hot path goes, by step. A process of the service runs under V8's profiler: the dispatcher at 500 events a
 * second, the consumers of the events of orders, and `POST /orders`.
 *
 * The profiler itself costs some CPU. A step's share is right, and its microseconds are that share of the CPU that the kernel counted.
 */
import { Console, Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import * as ServiceProcess from "../src/cli/ServiceProcess.ts"
import * as Cpu from "./Cpu.ts"
import { Side } from "./Environment.ts"
import { table } from "./Figures.ts"
import * as Flags from "./Flags.ts"
import * as Child from "./outside/Child.ts"
import * as Contenders from "./outside/Contenders.ts"
import { type Load, usual } from "./outside/OpenLoop.ts"
import * as Processes from "./outside/Processes.ts"
import { setUp, topicOf } from "./outside.ts"
import * as CpuProfile from "./profile/CpuProfile.ts"
import { order } from "./requests.ts"
import type { Answers, Load as Requests } from "./requests/Client.ts"

export const paths = ["dispatcher", "consumers", "orders"] as const
type PathName = (typeof paths)[number]

/** Between V8's samples. Its default of a millisecond sees too little of a path that takes a tenth of that. */
const sampleMicros = 200

/** Runs `work` beside a profiled process with these roles. `work` returns how many times the path was taken. */
const profiled = <E, R>(
  roles: string,
  env: Readonly<Record<string, string>>,
  work: (process: ServiceProcess.ServiceProcess) => Effect.Effect<number, E, R>
) =>
  Effect.gen(function* () {
    const directory = yield* Effect.acquireRelease(
      Effect.promise(() => mkdtemp(Path.join(tmpdir(), "bench-profile-"))),
      (made) => Effect.promise(() => rm(made, { recursive: true, force: true }))
    )
    const flags = `--cpu-prof --cpu-prof-dir=${directory} --cpu-prof-interval=${sampleMicros}`
    // The profile is written when the process ends.
    const { count, cpuSeconds, from, to } = yield* Effect.scoped(
      Effect.gen(function* () {
        const running = yield* ServiceProcess.start({
          roles,
          env: { ...env, LOG_LEVEL: "Warn", NODE_OPTIONS: `${Contenders.nodeOptions} ${flags}` }
        })
        // The first time compiles the code.
        yield* work(running)
        const [from, before] = [Child.now(), Cpu.secondsOf(running.pid)]
        const count = yield* work(running)
        return { count, from, to: Child.now(), cpuSeconds: Cpu.secondsOf(running.pid) - before }
      })
    )
    const steps = CpuProfile.steps(CpuProfile.read(directory), { from, to })
    const sampled = [...steps.values()].reduce((sum, micros) => sum + micros, 0)
    return {
      count,
      cpuMicros: (cpuSeconds / count) * 1e6,
      shares: [...steps]
        .map(([step, micros]) => ({ step, share: micros / sampled }))
        .toSorted((one, other) => other.share - one.share)
    }
  }).pipe(Effect.scoped)

interface Options {
  readonly rate: number
  readonly seconds: number
}

const dispatcher = Effect.fnUntraced(function* ({ rate, seconds }: Options) {
  const contender = Contenders.ours("on")
  const setting = yield* setUp([contender])
  const topic = topicOf(contender)
  const named = contender.named(topic)
  yield* setting.topics.acquire(topic)
  const writes = yield* Processes.warmWriter(contender, setting, topic, usual)
  let phase = 0
  return yield* profiled("dispatcher", { ...setting.variables, ...contender.relay, ...named.env }, () =>
    Effect.as(writes.call("run", { topic: named.topic, phase: ++phase, rate, seconds } satisfies Load), rate * seconds)
  )
}, Effect.scoped)

/** Clients that place orders one after the other. */
const placing = Effect.fnUntraced(function* (url: string, clients: number, seconds: number) {
  const { call } = yield* Child.start(Path.join(import.meta.dirname, "requests/Client.ts"), {})
  const load: Requests = { url, clients, millis: seconds * 1_000, method: "POST", path: "/orders", body: order }
  return (yield* call<Answers>("run", load)).millis.length
}, Effect.scoped)

const orders = Effect.fnUntraced(function* ({ seconds }: Options) {
  const variables = yield* Contenders.variables
  return yield* profiled("http", { ...variables, PORT: "0" }, ({ url }) => placing(url!, 8, seconds))
}, Effect.scoped)

const consumers = Effect.fnUntraced(function* ({ seconds }: Options) {
  const variables = yield* Contenders.variables
  const sql = yield* Side
  const service = yield* ServiceProcess.start({
    roles: "http,dispatcher",
    env: { ...variables, PORT: "0", LOG_LEVEL: "Warn", NODE_OPTIONS: Contenders.nodeOptions }
  })
  const applied = Effect.map(
    sql<{ readonly count: string }>`SELECT count(*)::text AS count FROM processed_events`,
    ([row]) => Number(row?.count)
  )
  return yield* profiled("consumers", variables, () =>
    Effect.gen(function* () {
      const before = yield* applied
      yield* placing(service.url!, 2, seconds)
      // What is left of the load belongs to it: the queue first, then the consumers.
      yield* Processes.patiently(
        Effect.map(sql`SELECT FROM outbox_events LIMIT 1`, (rows) => rows.length === 0),
        50
      )
      yield* Effect.sleep("1 second")
      return (yield* applied) - before
    })
  )
}, Effect.scoped)

const units: Readonly<Record<PathName, string>> = {
  dispatcher: "an event published",
  consumers: "an event applied by a consumer",
  orders: "a POST /orders"
}

/** Profiles the paths one after the other. */
export const profile = Effect.fnUntraced(function* (options: Options & { readonly paths: ReadonlyArray<PathName> }) {
  const runs = { dispatcher, consumers, orders }
  const results = yield* Effect.forEach(options.paths, (path) =>
    Effect.map(runs[path](options), (result) => ({ path, ...result }))
  )
  return { ...options, results }
})

/** The result for a reader. */
export const print = ({ results }: Effect.Success<ReturnType<typeof profile>>): string =>
  results
    .map(({ count, cpuMicros, path, shares }) =>
      table(
        [`${units[path]} (${count})`, "share", "CPU µs"],
        [
          ...shares.map(({ share, step }) => [step, `${(share * 100).toFixed(1)} %`, (share * cpuMicros).toFixed(1)]),
          ["all", "", cpuMicros.toFixed(1)]
        ]
      )
    )
    .join("\n\n")

/** `bench profile`. */
export const command = Command.make(
  "profile",
  {
    json: Flags.json,
    paths: Flag.String("paths").pipe(
      Flag.withDescription(`the paths, separated by commas: ${paths.join(", ")}`),
      Flag.withDefault(paths.join(","))
    ),
    rate: Flag.Int("rate").pipe(Flag.withDescription("events a second for the dispatcher"), Flag.withDefault(500)),
    seconds: Flags.seconds(8)
  },
  Effect.fnUntraced(function* ({ json, paths: named, ...options }) {
    const wanted = paths.filter((path) => named.split(",").includes(path))
    const result = yield* Effect.provide(
      Effect.scoped(profile({ ...options, paths: wanted })),
      Flags.environment({ kafka: true })
    )
    yield* Console.log(json ? JSON.stringify(result) : print(result))
  })
).pipe(Command.withDescription("The CPU of the hot paths by step, from V8's samples"))
