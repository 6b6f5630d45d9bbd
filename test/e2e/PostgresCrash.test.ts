/** The embedded Postgres dies while the service runs: started as by `npm start`, and killed as by the kernel when memory is short. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { spawn } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { eventually } from "../support/Counters.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"

const serve = (directory: string, roles?: string) =>
  ServiceProcess.start({
    ...(roles === undefined ? {} : { roles }),
    env: { DATA_DIRECTORY: directory, PORT: "0", LOG_LEVEL: "Info" }
  })

/** The server's process id; undefined while none is ready. */
const postmaster = (directory: string): number | undefined => {
  const file = Path.join(directory, "postgres/data/postmaster.pid")
  const lines = existsSync(file) ? readFileSync(file, "utf8").split("\n") : []
  const pid = Number(lines[0])
  return lines[7]?.trim() === "ready" && existsSync(`/proc/${pid}`) ? pid : undefined
}

const kill = (directory: string) =>
  Effect.sync(() => {
    const pid = postmaster(directory)!
    process.kill(pid, "SIGKILL")
    return pid
  })

const another = (directory: string, before: number) =>
  eventually(
    "another Postgres process",
    Effect.sync(() => {
      const pid = postmaster(directory)
      return pid !== undefined && pid !== before
    })
  )

const ask = (url: string, init?: RequestInit) =>
  Effect.promise(() =>
    fetch(url, { ...init, signal: AbortSignal.timeout(20_000) }).then(
      async (response) => ({ status: response.status, text: await response.text() }),
      () => ({ status: 0, text: "" })
    )
  )

const body = JSON.stringify({
  customerId: "ada",
  currency: "EUR",
  lines: [{ sku: "book", quantity: 1, unitAmountMinor: 100 }]
})
const placeOrder = (url: string) =>
  ask(`${url}/orders`, { method: "POST", headers: { "content-type": "application/json" }, body })
const idOf = (text: string) => (JSON.parse(text) as { readonly id: string }).id

const ready = (url: string) =>
  eventually(
    "the service to be ready",
    Effect.map(ask(`${url}/health/ready`), ({ status }) => status === 200)
  )

/** Waits for a line of the process about Postgres. Only the end of its output is kept, and every loop that fails meanwhile logs too. */
const hears = (service: ServiceProcess.ServiceProcess, what: string) =>
  eventually(
    `the line: ${what}`,
    Effect.sync(() => service.output().includes(`the embedded Postgres ${what}`))
  )

it.live("a killed Postgres is started again, and the service is ready with the orders from before", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    const service = yield* serve(directory)
    const url = service.url!
    const id = idOf((yield* placeOrder(url)).text)
    const before = yield* kill(directory)
    yield* hears(service, "has ended")
    yield* another(directory, before)
    yield* ready(url)
    assert.strictEqual((yield* ask(`${url}/orders/${id}`)).status, 200)
    assert.strictEqual((yield* placeOrder(url)).status, 201)
    yield* hears(service, "is back")
    // A clean stop, Postgres last.
    yield* service.signal("SIGTERM")
    assert.strictEqual(yield* service.exit, 0)
    assert.isUndefined(postmaster(directory))
  }).pipe(Effect.scoped)
)

it.live("two processes share one Postgres again, however often it is killed under load, and no order is lost", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    const one = yield* serve(directory)
    const two = yield* serve(directory)
    const placed: Array<string> = []
    const customer = (url: string) =>
      placeOrder(url).pipe(
        Effect.tap(({ status, text }) => {
          // Unavailable for a while, or the answer is lost: never another failure.
          assert.include([0, 201, 503], status, text)
          if (status === 201) placed.push(idOf(text))
          return Effect.sleep("20 millis")
        }),
        Effect.forever
      )
    const customers = yield* Effect.forEach([one.url!, two.url!], (url) => Effect.forkChild(customer(url)))
    const pids = new Set<number>()
    for (let round = 0; round < 10; round++) {
      const count = placed.length
      yield* eventually(
        "orders",
        Effect.sync(() => placed.length > count + 5)
      )
      const before = yield* kill(directory)
      pids.add(before)
      yield* another(directory, before)
    }
    assert.strictEqual(pids.size, 10)
    for (const { url } of [one, two]) yield* ready(url!)
    yield* Effect.forEach(customers, Fiber.interrupt)
    for (const id of placed) {
      yield* eventually(
        "the order",
        Effect.map(ask(`${two.url}/orders/${id}`), ({ status, text }) => {
          assert.include([200, 503], status, `${id}: ${text}`)
          return status === 200
        })
      )
    }
    assert.isAbove(placed.length, 50)
    // The one leaves, and the other goes on alone.
    yield* one.signal("SIGKILL")
    yield* one.exit
    yield* another(directory, yield* kill(directory))
    yield* ready(two.url!)
  }).pipe(Effect.scoped)
)

it.live("while a frozen process holds the lock its name is told, and with its end Postgres comes back", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    const service = yield* serve(directory)
    const program = `
      const { Effect } = await import("effect")
      const { withLock } = await import(${JSON.stringify(Path.join(root, "src/platform/DirectoryLock.ts"))})
      await Effect.runPromise(withLock(process.argv[1], Effect.promise(() => {
        process.stdout.write("held")
        return new Promise(() => setTimeout(() => {}, 600_000))
      })))
    `
    const holder = yield* Effect.acquireRelease(
      Effect.promise(async () => {
        const home = Path.join(directory, "postgres")
        const child = spawn(process.execPath, ["--input-type=module", "-e", program, home], { cwd: root })
        await new Promise((resolve) => child.stdout.once("data", resolve))
        return child
      }),
      (child) => Effect.sync(() => void child.kill("SIGKILL"))
    )
    holder.kill("SIGSTOP")
    const before = yield* kill(directory)
    yield* eventually(
      "the line about the holder",
      Effect.sync(() => service.output().includes(`waiting for process ${holder.pid}, which holds the lock`))
    )
    assert.isUndefined(postmaster(directory))
    assert.strictEqual((yield* ask(`${service.url}/health/live`)).status, 200)
    holder.kill("SIGKILL")
    yield* another(directory, before)
    yield* ready(service.url!)
  }).pipe(Effect.scoped)
)
