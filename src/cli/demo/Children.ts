/**
 * The demo's own processes of the service, for a person who breaks them: each can be frozen, thawed, killed and started again. A process is
 * known by its name here. No pid comes from outside, so nothing else on this machine can be hit.
 */
import { Effect, Fiber } from "effect"
import { Problem } from "../../http/Problems.ts"
import * as ServiceProcess from "../ServiceProcess.ts"

/** Two dispatchers, so that one takes over the lanes of the other. */
const roles: Readonly<Record<string, string>> = {
  http: "http,maintenance",
  "dispatcher-1": "dispatcher",
  "dispatcher-2": "dispatcher",
  consumers: "consumers,workers"
}

/** A process as the page shows it. */
export interface Child {
  readonly name: string
  readonly roles: string
  readonly state: "starting" | "running" | "frozen" | "dead"
  readonly pid: number | null
}

interface Life {
  state: Child["state"]
  process: ServiceProcess.ServiceProcess | undefined
  fiber: Fiber.Fiber<void> | undefined
}

/** An error has the output of a process in it. */
const maxReason = 500

/** None runs yet. They end with the scope. `tell` says what happens to them, with a name of ours and a pid. */
export const make = Effect.fnUntraced(function* (tell: (what: string) => Effect.Effect<void>) {
  const scope = yield* Effect.scope
  let env: Readonly<Record<string, string>> = {}
  const lives = new Map<string, Life>(
    Object.keys(roles).map((name) => [name, { state: "dead", process: undefined, fiber: undefined }])
  )
  /** The service comes back where it was, so that an open page finds it. */
  let port = "0"
  let consoleUrl: string | undefined

  const live = (name: string, life: Life, ready: () => void) =>
    Effect.gen(function* () {
      const isHttp = name === "http"
      const child = yield* ServiceProcess.start({
        roles: roles[name]!,
        env: { ...env, ...(isHttp ? { PORT: port } : {}) }
      })
      if (isHttp && child.url !== null) {
        port = new URL(child.url).port
        consoleUrl = child.consoleUrl
      }
      Object.assign(life, { process: child, state: "running" })
      yield* tell(`${name} runs as process ${child.pid}`)
      ready()
      const end = yield* child.exit
      yield* tell(`${name}, process ${child.pid}, has ended: ${typeof end === "number" ? `status ${end}` : end}`)
    }).pipe(
      Effect.scoped,
      Effect.catch((error) => tell(`${name} did not start: ${error.message.slice(0, maxReason)}`)),
      Effect.ensuring(Effect.sync(() => (Object.assign(life, { process: undefined, state: "dead" }), ready())))
    )

  /** Begins a start, and returns at once with the wait for its end: then the process is ready, or dead. */
  const start = (name: string, life: Life) =>
    Effect.gen(function* () {
      life.state = "starting"
      const { promise, resolve } = Promise.withResolvers<void>()
      life.fiber = yield* Effect.forkIn(live(name, life, resolve), scope)
      return Effect.promise(() => promise)
    })

  const signal = (name: string, child: ServiceProcess.ServiceProcess, life: Life, is: "frozen" | "running") =>
    Effect.gen(function* () {
      yield* child.signal(is === "frozen" ? "SIGSTOP" : "SIGCONT")
      life.state = is
      yield* tell(`${name}, process ${child.pid}, is ${is === "frozen" ? "frozen" : "thawed"}`)
    })

  const actions: Readonly<Record<string, (name: string, life: Life) => Effect.Effect<void, Problem>>> = {
    freeze: (name, life) => (life.state === "frozen" ? Effect.void : alive(name, life, "frozen")),
    thaw: (name, life) => (life.state === "running" ? Effect.void : alive(name, life, "running")),
    kill: (_, { fiber, process, state }) =>
      state === "dead" || process === undefined || fiber === undefined
        ? Effect.void
        : Effect.andThen(process.signal("SIGKILL"), Effect.asVoid(Fiber.await(fiber))),
    start: (name, life) => (life.state === "dead" ? Effect.asVoid(start(name, life)) : Effect.void)
  }
  const alive = (name: string, life: Life, is: "frozen" | "running"): Effect.Effect<void, Problem> =>
    life.process === undefined
      ? Effect.fail(new Problem({ status: 409, detail: `${name} is ${life.state}` }))
      : signal(name, life.process, life, is)

  return {
    list: (): ReadonlyArray<Child> =>
      [...lives].map(([name, { process, state }]) => ({ name, roles: roles[name]!, state, pid: process?.pid ?? null })),
    /** The console's address, with the token that signs in once. */
    consoleUrl: () => consoleUrl,
    /** Starts all with these variables, and waits until each is ready or has failed. */
    startAll: Effect.fnUntraced(function* (variables: Readonly<Record<string, string>>) {
      env = variables
      const waits = yield* Effect.forEach([...lives], ([name, life]) => start(name, life))
      yield* Effect.all(waits, { concurrency: "unbounded", discard: true })
    }),
    /** Does it to the process with that name. A repeated action changes nothing. A start is only begun. */
    act: (name: string, action: string): Effect.Effect<void, Problem> => {
      const life = lives.get(name)
      if (life === undefined) return unknown("process", name, [...lives.keys()])
      const does = actions[action]
      if (does === undefined) return unknown("action", action, Object.keys(actions))
      // Its state counts once it is this action's turn.
      return Effect.suspend(() => does(name, life))
    }
  }
})

/** 404 with the names that there are. */
export const unknown = (what: string, name: string, known: ReadonlyArray<string>) =>
  Effect.fail(
    new Problem({ status: 404, detail: `there is no ${what} ${name.slice(0, 100)}; there are ${known.join(", ")}` })
  )
