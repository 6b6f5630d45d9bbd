/**
 * `npm run bench`: the whole picture. `npm run bench -- append|drain|consume|console|latency|save|pay|flat|idle|memory|outside|profile|reconcile|requests|roll-forward|start|tasks [--json] [--events N] [--rounds N]`: figures as ratios within one run.
 *
 * A run starts a Postgres and a Kafka of its own unless `DATABASE_URL` and `KAFKA_BROKERS` name others.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Console, Effect, Logger } from "effect"
import { Command, Flag } from "effect/cli"
import * as Append from "./append.ts"
import * as ConsolePages from "./console.ts"
import * as Consume from "./consume.ts"
import * as Drain from "./drain.ts"
import * as Flat from "./flat.ts"
import * as Idle from "./idle.ts"
import * as Latency from "./latency.ts"
import * as Outside from "./outside.ts"
import * as Pay from "./pay.ts"
import * as Picture from "./picture.ts"
import * as Profile from "./profile.ts"
import * as Reconcile from "./reconcile.ts"
import * as Requests from "./requests.ts"
import * as RollForward from "./rollForward.ts"
import * as Save from "./save.ts"
import * as Start from "./start.ts"
import * as Memory from "./memory.ts"
import * as Tasks from "./tasks.ts"
import { environment, events, json, rounds, seconds } from "./Flags.ts"

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

const latency = Command.make(
  "latency",
  {
    json,
    rate: Flag.Int("rate").pipe(Flag.withDescription("events a second"), Flag.withDefault(500)),
    rounds: rounds(5),
    seconds: seconds(5)
  },
  Effect.fnUntraced(function* ({ json, ...options }) {
    const result = yield* Effect.provide(Latency.latency(options), environment({ kafka: true }))
    yield* Console.log(json ? JSON.stringify(result) : Latency.print(result))
  })
).pipe(Command.withDescription("Commit to ack at 500 events a second, beside sending right after the commit"))

const consume = Command.make(
  "consume",
  {
    json,
    events: events(100_000),
    rounds: rounds(2),
    rate: Flag.Int("rate").pipe(Flag.withDescription("events a second"), Flag.withDefault(500)),
    seconds: seconds(4)
  },
  Effect.fnUntraced(function* ({ json, ...options }) {
    const result = yield* Effect.provide(Consume.consume(options), environment({ kafka: true }))
    yield* Console.log(json ? JSON.stringify(result) : Consume.print(result))
  })
).pipe(Command.withDescription("Events from Kafka to their effects, and commit to effect at 500 events a second"))

const save = Command.make(
  "save",
  {
    json,
    rounds: rounds(15),
    transactions: Flag.Int("transactions").pipe(
      Flag.withDescription("transactions a client and block"),
      Flag.withDefault(250)
    ),
    clients: Flag.Int("clients").pipe(Flag.withDescription("clients that write side by side"), Flag.withDefault(8))
  },
  Effect.fnUntraced(function* ({ json, ...options }) {
    const result = yield* Effect.provide(Save.save(options), environment({ kafka: false }))
    yield* Console.log(json ? JSON.stringify(result) : Save.print(result))
  })
).pipe(Command.withDescription("An aggregate's write with its event, beside the write alone"))

const append = Command.make(
  "append",
  {
    json,
    rounds: rounds(7),
    seconds: seconds(1),
    clients: Flag.Int("clients").pipe(Flag.withDescription("connections of pgbench"), Flag.withDefault(8)),
    pipelined: Flag.Int("pipelined").pipe(
      Flag.withDescription("updates and events that a transaction sends at once"),
      Flag.withDefault(1)
    ),
    brief: Flag.Boolean("brief").pipe(
      Flag.withDescription("without what each part of an event costs"),
      Flag.withDefault(false)
    )
  },
  Effect.fnUntraced(function* ({ json, ...options }) {
    const result = yield* Effect.provide(Append.append(options), environment({ kafka: false }))
    yield* Console.log(json ? JSON.stringify(result) : Append.print(result))
  })
).pipe(Command.withDescription("What an event costs Postgres at its writer, and each of its parts, by pgbench"))

const idle = Command.make(
  "idle",
  { json, seconds: seconds(30) },
  Effect.fnUntraced(function* ({ json, ...options }) {
    const result = yield* Effect.provide(Idle.idle(options), environment({ kafka: true }))
    yield* Console.log(json ? JSON.stringify(result) : Idle.print(result))
  })
).pipe(Command.withDescription("What a dispatcher costs that has nothing to do"))

const tasks = Command.make(
  "tasks",
  {
    json,
    rounds: rounds(3),
    tasks: Flag.Int("tasks").pipe(Flag.withDescription("tasks a block"), Flag.withDefault(50_000)),
    finished: Flag.Int("finished").pipe(
      Flag.withDescription("finished tasks in the table"),
      Flag.withDefault(1_000_000)
    )
  },
  Effect.fnUntraced(function* ({ json, ...options }) {
    const result = yield* Effect.provide(Tasks.tasks(options), environment({ kafka: false }))
    yield* Console.log(json ? JSON.stringify(result) : Tasks.print(result))
  })
).pipe(Command.withDescription("Tasks that do nothing: drained, started from idle, and beside a million finished ones"))

const flat = Command.make(
  "flat",
  {
    json,
    archived: Flag.Int("archived").pipe(
      Flag.withDescription("published events in the archive"),
      Flag.withDefault(10_000_000)
    ),
    queued: Flag.Int("queued").pipe(Flag.withDescription("events of a backlog"), Flag.withDefault(1_000_000)),
    readerEvents: Flag.Int("reader-events").pipe(
      Flag.withDescription("events published while an old reader is open"),
      Flag.withDefault(300_000)
    )
  },
  Effect.fnUntraced(function* ({ json, ...options }) {
    const result = yield* Effect.provide(Flat.flat(options), environment({ kafka: false }))
    yield* Console.log(json ? JSON.stringify(result) : Flat.print(result))
  })
).pipe(Command.withDescription("Poll and fetch with an archive, a backlog and an old reader, beside an empty system"))

const pay = Command.make(
  "pay",
  {
    json,
    rounds: rounds(15),
    clients: Flag.Int("clients").pipe(Flag.withDescription("clients that pay side by side"), Flag.withDefault(8)),
    payments: Flag.Int("payments").pipe(Flag.withDescription("payments a block"), Flag.withDefault(600)),
    pace: Flag.Int("pace").pipe(Flag.withDescription("payments a second where they are paced"), Flag.withDefault(100))
  },
  Effect.fnUntraced(function* ({ json, ...options }) {
    const result = yield* Effect.provide(Pay.pay(options), environment({ kafka: false }))
    yield* Console.log(json ? JSON.stringify(result) : Pay.print(result))
  })
).pipe(
  Command.withDescription(
    "Paying over HTTP, with its events, without, and with the least rows, beside the same SQL on plain connections"
  )
)

const consolePages = Command.make(
  "console",
  {
    json,
    rounds: rounds(6),
    seconds: seconds(15),
    pages: Flag.Int("pages").pipe(Flag.withDescription("open pages"), Flag.withDefault(10)),
    rate: Flag.Int("rate").pipe(Flag.withDescription("payments a second"), Flag.withDefault(25)),
    kafka: Flag.Boolean("kafka").pipe(
      Flag.withDescription("with Kafka instead of the embedded broker"),
      Flag.withDefault(false)
    )
  },
  Effect.fnUntraced(function* ({ json, kafka, ...options }) {
    const result = yield* Effect.provide(ConsolePages.console_(options), environment({ kafka }))
    yield* Console.log(json ? JSON.stringify(result) : ConsolePages.print(result))
  })
).pipe(Command.withDescription("What open pages of the console cost the service, beside the same load without them"))

const requests = Command.make(
  "requests",
  {
    json,
    rounds: rounds(3),
    seconds: seconds(4),
    warmUpSeconds: Flag.Int("warm-up").pipe(
      Flag.withDescription("seconds of each kind of request before the first block"),
      Flag.withDefault(10)
    ),
    clients: Flag.Int("clients").pipe(Flag.withDescription("connections that ask at once"), Flag.withDefault(8))
  },
  Effect.fnUntraced(function* ({ json, ...options }) {
    const result = yield* Effect.provide(Effect.scoped(Requests.requests(options)), environment({ kafka: false }))
    yield* Console.log(json ? JSON.stringify(result) : Requests.print(result))
  })
).pipe(Command.withDescription("Placing and reading orders over HTTP, beside node:http and pg alone"))

const start = Command.make(
  "start",
  { json, rounds: rounds(5) },
  Effect.fnUntraced(function* ({ json, ...options }) {
    const result = yield* Effect.scoped(Start.start(options))
    yield* Console.log(json ? JSON.stringify(result) : Start.print(result))
  })
).pipe(Command.withDescription("Commands and starts as a person waits for them, and the memory of an idle service"))

const reconcile = Command.make(
  "reconcile",
  { json, orders: Flag.Int("orders").pipe(Flag.withDescription("orders that agree"), Flag.withDefault(1_000_000)) },
  Effect.fnUntraced(function* ({ json, ...options }) {
    const result = yield* Effect.provide(Reconcile.reconcile(options), environment({ kafka: false }))
    yield* Console.log(json ? JSON.stringify(result) : Reconcile.print(result))
  })
).pipe(Command.withDescription("The reconciliation of a million orders: its time, and its peak memory"))

const rollForward = Command.make(
  "roll-forward",
  {
    json,
    orders: Flag.Int("orders").pipe(Flag.withDescription("paid orders in the topic"), Flag.withDefault(200_000))
  },
  Effect.fnUntraced(function* ({ json, ...options }) {
    const result = yield* Effect.provide(RollForward.rollForward(options), environment({ kafka: true }))
    yield* Console.log(json ? JSON.stringify(result) : RollForward.print(result))
  })
).pipe(
  Command.withDescription(
    "A database that has lost all orders of its topic is rolled forward, and once more: time, and peak memory"
  )
)

const program = Picture.command.pipe(
  Command.withSubcommands([
    append,
    drain,
    consume,
    consolePages,
    latency,
    save,
    flat,
    idle,
    memory,
    Outside.command,
    pay,
    Profile.command,
    reconcile,
    requests,
    rollForward,
    start,
    tasks
  ]),
  Command.run({ version: "1" }),
  Effect.scoped,
  Effect.provide(NodeServices.layer),
  // The result goes to stdout, and all logs to stderr.
  Effect.provide(Logger.layer([Logger.withConsoleError(Logger.formatLogFmt)]))
)

NodeRuntime.runMain(program)
