/**
 * The attack that once ended the process in 35 seconds: clients that ask for the largest answers and never read them. The service runs as a
 * process with the flags of `npm start`. How promptly health answers meanwhile is printed.
 */
import { assert, it } from "@effect/vitest"
import { Console, Duration, Effect, Fiber, Redacted, Ref, Schedule, Schema } from "effect"
import { readFileSync } from "node:fs"
import { connect } from "node:net"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { send } from "../http/Service.ts"
import { eventually } from "../support/Counters.ts"
import { root } from "../support/Postgres.ts"
import { TestDatabase } from "../support/TestDatabase.ts"

const Manifest = Schema.fromJsonString(Schema.Struct({ scripts: Schema.Struct({ start: Schema.String }) }))

/** The flags of `npm start`, as the test's process starts Node without them. */
const startFlags = (): string => {
  const { start } = Schema.decodeUnknownSync(Manifest)(readFileSync(Path.join(root, "package.json"), "utf8")).scripts
  return / node (--.*) src\//.exec(start)![1]!
}

/** A third of the heap's limit. The process has some 250 MB at rest, and had 2.8 GB when it died. */
const maxResidentMegabytes = 800

const attackers = 80
const largestOrder = {
  customerId: "attacker",
  currency: "EUR",
  lines: Array.from({ length: 1_000 }, () => ({ sku: "s".repeat(100), quantity: 1, unitAmountMinor: 1 }))
}

const residentMegabytes = (pid: number): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1_024

/** A client that sends `text`, never reads, and comes back whenever its connection is closed. */
const attacker = (port: number, text: string) =>
  Effect.callback<never>(() => {
    let isOver = false
    const begin = () => {
      const socket = connect(port, "127.0.0.1")
      socket.pause()
      socket.on("error", () => {})
      socket.on("close", () => (isOver ? undefined : setTimeout(begin, 50)))
      socket.write(text)
      return socket
    }
    let current = begin()
    return Effect.sync(() => {
      isOver = true
      current.destroy()
    })
  })

const median = (values: ReadonlyArray<number>) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!

/** Asks for health and metrics, on a new connection each time, and returns how long the answers took. */
const probe = (url: string, count: number) =>
  Effect.forEach(
    Array.from({ length: count }, (_, index) => ["/health/live", "/health/ready", "/metrics"][index % 3]!),
    (path) =>
      Effect.map(
        Effect.timed(send(`${url}${path}`, { headers: { connection: "close" } })),
        ([took, { status }]): number => {
          // The database may take longer to answer than readiness waits for it.
          assert.include(path === "/health/ready" ? [200, 503] : [200], status, path)
          return Duration.toMillis(took)
        }
      )
  )

it.live("clients that never read the largest answers neither end the process nor keep others from health", () =>
  Effect.gen(function* () {
    const { url: database } = yield* TestDatabase
    const directory = yield* TestDatabase.dataDirectory
    const { pid, url } = yield* ServiceProcess.start({
      env: {
        DATABASE_URL: Redacted.value(database),
        DATA_DIRECTORY: directory,
        PORT: "0",
        LOG_LEVEL: "Warn",
        NODE_OPTIONS: startFlags()
      }
    })
    const port = Number(new URL(url!).port)
    const ids = yield* Effect.forEach(
      Array.from({ length: 100 }),
      () => Effect.map(send(`${url}/orders`, { body: largestOrder }), ({ json }) => json.id as string),
      { concurrency: 4 }
    )
    const peak = yield* Ref.make(0)
    yield* Effect.sync(() => residentMegabytes(pid)).pipe(
      Effect.flatMap((now) => Ref.update(peak, (before) => Math.max(before, now))),
      Effect.repeat(Schedule.spaced("50 millis")),
      Effect.forkChild
    )
    const atRest = median(yield* probe(url!, 60))

    const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`
    for (const [name, text] of [
      ["lists", get("/orders?limit=100")],
      ["lists, sixteen on each connection", get("/orders?limit=100").repeat(16)],
      [
        "orders, sixteen on each connection",
        ids
          .slice(0, 16)
          .map((id) => get(`/orders/${id}`))
          .join("")
      ],
      ["orders, a hundred on each connection", ids.map((id) => get(`/orders/${id}`)).join("")]
    ] as const) {
      const attack = yield* Effect.forkChild(
        Effect.all(
          Array.from({ length: attackers }, () => attacker(port, text)),
          { concurrency: "unbounded" }
        )
      )
      const took = yield* probe(url!, 60)
      // Others are refused at worst, and come to their turn.
      const honest = yield* send(`${url}/orders/${ids[0]}`).pipe(
        Effect.repeat({ until: ({ status }) => status === 200, schedule: Schedule.spaced("1 second") }),
        Effect.timeout("60 seconds")
      )
      assert.strictEqual(honest.json.lines.length, 1_000)
      yield* Fiber.interrupt(attack)
      const factor = (median(took) / atRest).toFixed(1)
      yield* Console.log(
        `${attackers} clients that don't read ${name}: health and metrics p50 ${Math.round(median(took))} ms, ` +
          `at most ${Math.round(Math.max(...took))} ms; ${factor} times the p50 at rest (${atRest.toFixed(1)} ms); ` +
          `${Math.round(yield* Ref.get(peak))} MB resident at most`
      )
      assert.isBelow(yield* Ref.get(peak), maxResidentMegabytes, name)
    }
    yield* eventually(
      "the service to be ready",
      Effect.map(send(`${url}/health/ready`), ({ json }) => json.status === "ready")
    )
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool))
)
