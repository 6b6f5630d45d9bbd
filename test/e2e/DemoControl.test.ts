/** A demo that stays: who may ask its control, and what becomes of its processes. The page is in test/console/BreakIt.test.ts. */
import { assert, it } from "@effect/vitest"
import { Effect, Exit, Redacted, Scope } from "effect"
import { spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import * as Path from "node:path"
import { pathToFileURL } from "node:url"
import * as Children from "../../src/cli/demo/Children.ts"
import * as Control from "../../src/cli/demo/Control.ts"
import * as DrillRuns from "../../src/cli/demo/DrillRuns.ts"
import * as Breakages from "../../src/cli/drill/Breakages.ts"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { eventually } from "../support/Counters.ts"
import { sendRaw } from "../support/RawHttp.ts"
import { root, TestDatabase } from "../support/TestDatabase.ts"

const origin = "http://127.0.0.1:3999"

it.live("the control is asked by a page of the demo's service with its token, and by nobody else", () =>
  Effect.gen(function* () {
    const acted: Array<string> = []
    const { port, token, url } = yield* Control.make({
      origin: () => origin,
      state: () => ({ acted }),
      act: (path) => Effect.sync(() => void acted.push(path.join(" ")))
    })
    const host = `Host: 127.0.0.1:${port}`
    const bearer = `Authorization: Bearer ${token}`
    const kill = "POST /processes/http/kill HTTP/1.1"
    const refused: ReadonlyArray<readonly [status: number, head: ReadonlyArray<string>]> = [
      [401, [kill, host]],
      [401, [kill, host, `Origin: ${origin}`, `Authorization: Bearer ${token.slice(0, -1)}`]],
      [401, ["GET /state HTTP/1.1", host]],
      // A name that an attacker lets point at this machine, and another server of it.
      [421, [kill, `Host: evil.example:${port}`, bearer]],
      [421, [kill, "Host: 127.0.0.1:1", bearer]],
      [421, [kill, bearer]],
      [403, [kill, host, bearer, "Origin: https://evil.example"]],
      [403, [kill, host, bearer, "Origin: null"]],
      [403, [kill, host, bearer, "Origin: http://localhost:3999"]],
      [403, ["OPTIONS /processes/http/kill HTTP/1.1", host, "Origin: https://evil.example"]],
      [413, [kill, host, bearer, "Content-Length: 1"]],
      [404, ["GET /processes/http/kill HTTP/1.1", host, bearer]]
    ]
    for (const [status, head] of refused) {
      const answer = yield* sendRaw(port, head)
      assert.strictEqual(answer.status, status, head.join("\n"))
      assert.isUndefined(status === 404 ? undefined : answer.headers["access-control-allow-origin"], head.join("\n"))
    }
    assert.deepStrictEqual(acted, [])

    const asked = yield* sendRaw(port, ["OPTIONS /state HTTP/1.1", host, `Origin: ${origin}`])
    assert.deepInclude(asked.headers, {
      "access-control-allow-origin": origin,
      "access-control-allow-headers": "authorization"
    })
    const done = yield* sendRaw(port, [kill, host, bearer, `Origin: ${origin}`, "Content-Length: 0"])
    assert.deepStrictEqual(
      [done.status, done.headers["access-control-allow-origin"], acted],
      [200, origin, ["processes http kill"]]
    )
    assert.match(url, /^http:\/\/127\.0\.0\.1:\d+$/)
  }).pipe(Effect.scoped)
)

/** As Linux has it: T is stopped. Undefined where there is no such process. */
const stateOf = (pid: number) => {
  try {
    return /^State:\s+(\w)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]
  } catch {
    return undefined
  }
}

/** Starts a process of the service as the demo does, and prints its number. */
const parent = `
import { Console, Effect } from "effect"
import { start } from ${JSON.stringify(pathToFileURL(Path.join(root, "src/cli/ServiceProcess.ts")).href)}
await Effect.runPromise(Effect.scoped(Effect.andThen(
  Effect.flatMap(start({ env: process.env }), ({ pid }) => Console.log(pid)), Effect.never)))`

it.live("a process ends when the one that has started it is killed", () =>
  Effect.gen(function* () {
    const { url } = yield* TestDatabase
    const starter = spawn(process.execPath, ["--input-type=module", "--eval", parent], {
      cwd: root,
      env: {
        PATH: process.env["PATH"],
        ...plantedEnv(),
        DATABASE_URL: Redacted.value(url),
        DATA_DIRECTORY: yield* TestDatabase.dataDirectory,
        PORT: "0",
        LOG_LEVEL: "Error"
      },
      stdio: ["ignore", "pipe", "inherit"]
    })
    const pid = Number(yield* Effect.promise(() => new Promise((resolve) => void starter.stdout.once("data", resolve))))
    // Should it stay, the test would leave it behind.
    yield* Effect.addFinalizer(() => Effect.sync(() => stateOf(pid) === undefined || process.kill(pid, "SIGKILL")))
    assert.include(["S", "R"], stateOf(pid))
    starter.kill("SIGKILL")
    yield* eventually(
      "the service to end",
      // It may wait as a zombie for the process that reaps orphans.
      Effect.sync(() => ["Z", undefined].includes(stateOf(pid)))
    )
  }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer))
)

it.live(
  "a process is frozen, thawed, killed and started by its name, once however often it is asked, and all end with the demo",
  () =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase
      const directory = yield* TestDatabase.dataDirectory
      const scope = yield* Scope.make()
      const told: Array<string> = []
      const children = yield* Children.make((what) => Effect.sync(() => void told.push(what))).pipe(
        Effect.provideService(Scope.Scope, scope)
      )
      yield* children.startAll({ DATABASE_URL: Redacted.value(url), DATA_DIRECTORY: directory, LOG_LEVEL: "None" })
      const one = (name: string) => children.list().find((child) => child.name === name)!
      const pidOf = (name: string) => one(name).pid!
      const refusal = (name: string, action: string) => Effect.flip(children.act(name, action))
      const act = (name: string, action: string) => Effect.repeat(children.act(name, action), { times: 1 })
      assert.deepStrictEqual(
        children.list().map(({ name, state }) => `${name} ${state}`),
        ["http running", "dispatcher-1 running", "dispatcher-2 running", "consumers running"],
        told.join("\n")
      )

      yield* act("dispatcher-1", "freeze")
      yield* eventually(
        "a stopped process",
        Effect.sync(() => stateOf(pidOf("dispatcher-1")) === "T")
      )
      yield* act("dispatcher-1", "thaw")
      yield* eventually(
        "one that goes on",
        Effect.sync(() => stateOf(pidOf("dispatcher-1")) !== "T")
      )
      yield* act("dispatcher-1", "freeze")

      const killed = pidOf("dispatcher-2")
      yield* act("dispatcher-2", "kill")
      assert.isUndefined(stateOf(killed))
      assert.strictEqual((yield* refusal("dispatcher-2", "freeze")).message, "dispatcher-2 is dead")
      assert.include(
        (yield* refusal("dispatcher-3", "kill")).message,
        "there are http, dispatcher-1, dispatcher-2, consumers"
      )
      assert.include((yield* refusal("http", "stop")).message, "there are freeze, thaw, kill, start")
      yield* act("dispatcher-2", "start")
      yield* eventually(
        "a new process",
        Effect.sync(() => one("dispatcher-2").state === "running")
      )

      const consoleUrl = children.consoleUrl()!
      yield* act("http", "kill")
      yield* act("http", "start")
      yield* eventually(
        "the service where it was",
        Effect.sync(() => one("http").state === "running")
      )
      assert.strictEqual(new URL(children.consoleUrl()!).origin, new URL(consoleUrl).origin)
      assert.notStrictEqual(children.consoleUrl(), consoleUrl)
      const ofDispatcher = told.filter((what) => what.startsWith("dispatcher-"))
      assert.deepStrictEqual(
        ofDispatcher.slice(2).map((what) => what.replaceAll(/\d{2,}/g, "N")),
        [
          "dispatcher-1, process N, is frozen",
          "dispatcher-1, process N, is thawed",
          "dispatcher-1, process N, is frozen",
          "dispatcher-2, process N, has ended: SIGKILL",
          "dispatcher-2 runs as process N"
        ]
      )

      const pids = children.list().map(({ pid }) => pid!)
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(pids.map(stateOf), [undefined, undefined, undefined, undefined])
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layer)),
  120_000
)

it.live(
  "a demo runs one drill at a time, tells its lines, and ends it as Ctrl-C does",
  () =>
    Effect.gen(function* () {
      const { url } = yield* TestDatabase
      const directory = yield* TestDatabase.dataDirectory
      const env = { DATABASE_URL: Redacted.value(url), DATA_DIRECTORY: directory, LOG_LEVEL: "None", PORT: "0" }
      const service = yield* ServiceProcess.start({ env: { ...env, FAULTS: "on" } })
      const scope = yield* Scope.make()
      const told: Array<string> = []
      const drills = yield* DrillRuns.make(env, (what) => Effect.sync(() => void told.push(what))).pipe(
        Effect.provideService(Scope.Scope, scope)
      )
      assert.include(
        (yield* Effect.flip(drills.act("everything", service.url!))).message,
        "there are poison, oversize, outage"
      )
      yield* drills.act("outage", service.url!)
      assert.strictEqual(
        (yield* Effect.flip(drills.act("poison", service.url!))).message,
        "the drill outage is running: one at a time"
      )
      assert.deepStrictEqual(
        drills.list().flatMap(({ isRunning, name }) => (isRunning ? [name] : [])),
        ["outage"]
      )
      yield* eventually(
        "the broker to be away",
        Effect.sync(() => told.some((what) => what.startsWith("outage: ✗ break: ")))
      )
      assert.isTrue(yield* Breakages.broker.isBroken)
      yield* Scope.close(scope, Exit.void)
      assert.isFalse(yield* Breakages.broker.isBroken)
      assert.isTrue(drills.list().every(({ isRunning }) => !isRunning))
    }).pipe(Effect.scoped, Effect.provide(TestDatabase.layerPool)),
  120_000
)
