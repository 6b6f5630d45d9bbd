/**
 * `npm run bench -- drain|latency|save|flat|idle [--json] [--events N] [--rounds N]`: figures as ratios within one run.
 *
 * A run starts a Postgres and a Kafka of its own unless `DATABASE_URL` and `KAFKA_BROKERS` name others.
 */
import { NodeRuntime, NodeServices } from "@effect/platform-node"
import { Console, Effect, Layer, Logger } from "effect"
import { Command, Flag } from "effect/cli"
import * as Drain from "./drain.ts"
import * as Memory from "./memory.ts"
import { Environment, Side } from "./Environment.ts"

const json = Flag.Boolean("json").pipe(Flag.withDescription("print JSON for programs to read"), Flag.withDefault(false))
const rounds = (fallback: number) =>
  Flag.Int("rounds").pipe(Flag.withDescription("interleaved rounds"), Flag.withDefault(fallback))
const events = (fallback: number) =>
  Flag.Int("events").pipe(Flag.withDescription("events a block"), Flag.withDefault(fallback))

const environment = (options: { readonly kafka: boolean }) =>
  Side.layer.pipe(Layer.provideMerge(Environment.layer(options)))

const drain = Command.make(
  "drain",
  { json, events: events(200_000), rounds: rounds(5) },
  Effect.fnUntraced(function* ({ json, ...options }) {
    const result = yield* Effect.provide(Drain.drain(options), environment({ kafka: true }))
    yield* Console.log(json ? JSON.stringify(result) : Drain.print(result))
  })
).pipe(Command.withDescription("Committed events to Kafka, beside what the client and Postgres can do alone"))

const memory = Command.make(
  "memory",
  { json, events: events(1_000_000) },
  Effect.fnUntraced(function* ({ json, ...options }) {
    const result = yield* Effect.provide(Memory.memory(options), environment({ kafka: true }))
    yield* Console.log(json ? JSON.stringify(result) : Memory.print(result))
  })
).pipe(Command.withDescription("Peak memory of a dispatcher that drains a backlog"))

const program = Command.make("bench").pipe(
  Command.withDescription("Figures as ratios within one run"),
  Command.withSubcommands([drain, memory]),
  Command.run({ version: "1" }),
  Effect.scoped,
  Effect.provide(NodeServices.layer),
  // What is printed is the result; what happened meanwhile goes to stderr.
  Effect.provide(Logger.layer([Logger.withConsoleError(Logger.formatLogFmt)]))
)

NodeRuntime.runMain(program)
