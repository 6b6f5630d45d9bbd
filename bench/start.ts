/** `bench start`: commands and starts as a person waits for them, and the memory of a service with nothing to do, each beside its limit. */
import { Effect, Schema, type Scope } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import { roles } from "../src/Roles.ts"
import * as Figures from "./Figures.ts"

const root = Path.resolve(import.meta.dirname, "..")

/** The limits, in milliseconds and MB. */
const limits = { command: 400, start: 1_500, memory: 150 }

/** The first polls, samples and rounds are over by then, and the garbage of the start is collected or stays. */
const idleMillis = 10_000

const Ready = Schema.fromJsonString(Schema.Struct({ ready: Schema.Literal(true), pid: Schema.Int }))
const decodeReady = Schema.decodeUnknownSync(Ready)

type Env = Readonly<Record<string, string>>

const launch = (command: ReadonlyArray<string>, env: Env): ChildProcess =>
  spawn(command[0]!, command.slice(1), {
    cwd: root,
    env: { PATH: process.env["PATH"], HOME: process.env["HOME"], LOG_LEVEL: "Warn", PORT: "0", ...env },
    stdio: ["ignore", "pipe", "inherit"]
  })

const ended = (child: ChildProcess) =>
  Effect.callback<void>((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
    child.once("close", () => resume(Effect.void))
  })

/** Milliseconds until the command has ended. */
const timed = (command: ReadonlyArray<string>, env: Env = {}) =>
  Effect.gen(function* () {
    const started = performance.now()
    const child = launch(command, env)
    child.stdout?.resume()
    yield* ended(child)
    return performance.now() - started
  })

/** Starts a service, until the scope closes: its process id, and the milliseconds until it was ready. */
const started = (
  command: ReadonlyArray<string>,
  env: Env
): Effect.Effect<{ readonly millis: number; readonly pid: number }, never, Scope.Scope> =>
  Effect.gen(function* () {
    const begun = performance.now()
    const child = yield* Effect.acquireRelease(
      Effect.sync(() => launch(command, env)),
      (running) =>
        Effect.andThen(
          Effect.sync(() => running.kill("SIGTERM")),
          ended(running)
        )
    )
    const pid = yield* Effect.callback<number>((resume) => {
      let output = ""
      child.stdout?.on("data", (chunk: Buffer) => {
        output += chunk.toString()
        const line = output.split("\n").find(isReadyLine)
        if (line !== undefined) resume(Effect.succeed(decodeReady(line).pid))
      })
    })
    return { millis: performance.now() - begun, pid }
  })

const isReadyLine = (line: string): boolean => line.startsWith('{"ready":true')

/** Resident memory in MB, as the kernel counts it. */
const memoryOf = (pid: number) =>
  Effect.map(
    Effect.promise(() => readFile(`/proc/${pid}/status`, "utf8")),
    (status) => Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1_024
  )

const cli = ["npm", "run", "--silent", "paid-once", "--"]
const direct = [process.execPath, "src/paid-once.js"]
const npmStart = ["npm", "start", "--silent", "--", "--json"]

/** Measures commands in `rounds`, each beside Node and npm alone. Each start has a directory of its own. */
export const start = Effect.fnUntraced(function* ({ rounds }: { readonly rounds: number }) {
  const directory = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(Path.join(tmpdir(), "paid-once-start-"))),
    (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
  )
  const env = { DATA_DIRECTORY: directory }
  const first = yield* Effect.scoped(started(npmStart, env))
  const seconds: Array<number> = []
  for (let round = 0; round < rounds; round++) {
    seconds.push((yield* Effect.scoped(started(npmStart, env))).millis)
  }
  const memory: Array<readonly [string, number]> = []
  for (const some of [roles.join(","), ...roles]) {
    const megabytes = yield* Effect.scoped(
      Effect.gen(function* () {
        const { pid } = yield* started([...npmStart, "--roles", some], env)
        yield* Effect.sleep(idleMillis)
        return yield* memoryOf(pid)
      })
    )
    memory.push([some === roles.join(",") ? "all roles" : some, megabytes])
  }
  const commands = yield* Effect.scoped(
    Effect.gen(function* () {
      yield* started(npmStart, env)
      const blocks = [
        ["node alone", [process.execPath, "--eval", "0"]],
        ["--help", [...direct, "--help"]],
        ["outbox status, beside a service", [...direct, "outbox", "status"]],
        ["npm run paid-once -- --help", [...cli, "--help"]],
        ["npm run paid-once -- outbox status", [...cli, "outbox", "status"]]
      ] as const
      const millis = new Map(blocks.map(([name]) => [name, [] as Array<number>]))
      for (let round = 0; round < rounds; round++) {
        for (const [name, command] of blocks) millis.get(name)!.push(yield* timed(command, env))
      }
      return [...millis].map(([name, all]) => ({ name, millis: Figures.spread(all) }))
    })
  )
  return { commands, first: first.millis, second: Figures.spread(seconds), memory }
})

/** The result for a reader. */
export const print = ({ commands, first, memory, second }: Effect.Success<ReturnType<typeof start>>): string =>
  Figures.table(
    ["what", "figure", "limit"],
    [
      ...commands.map(({ millis, name }) => [
        name,
        `${Figures.show(millis, 0)} ms`,
        name === "node alone" ? "" : `${limits.command} ms`
      ]),
      ["npm start to ready, the first time", `${first.toFixed(0)} ms`, ""],
      ["npm start to ready, with data", `${Figures.show(second, 0)} ms`, `${limits.start} ms`],
      ...memory.map(([name, megabytes]) => [`idle: ${name}`, `${megabytes.toFixed(0)} MB`, `${limits.memory} MB`])
    ]
  )
