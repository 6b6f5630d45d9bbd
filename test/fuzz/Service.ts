/** The service as a process that the fuzzer kills, freezes and starts again, and whose memory it watches. */
import { Effect, Exit, Option, Ref, Scope } from "effect"
import { readFile } from "node:fs/promises"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"

/** A heap of this size is far above what the service needs. Where memory grows without a bound it is soon reached. */
const heapMegabytes = 512
/** The heap, and as much again for sockets, code and the collector's spare room. */
export const maxResidentBytes = 1_024 * 1_048_576

export interface Service {
  readonly url: Effect.Effect<string>
  /** It runs, and no stop of it has begun. */
  readonly isUp: Effect.Effect<boolean>
  /** Changes whenever the process is started, or a stop of it begins. */
  readonly epoch: Effect.Effect<number>
  /** Ends the process with this signal, and starts it again with these faults set. Returns what was wrong with its end. */
  readonly restart: (
    signal: "SIGKILL" | "SIGTERM",
    faults: string
  ) => Effect.Effect<string | undefined, ServiceProcess.ServiceProcessFailed>
  /** Stops the process as a machine does that swaps, or a container that is moved. */
  readonly freeze: (millis: number) => Effect.Effect<void>
  /** If it has ended without being asked: how. Undefined while it runs, or after a crash that was set. */
  readonly ended: Effect.Effect<string | undefined>
  /** Waits until it has ended. */
  readonly exit: Effect.Effect<void>
  /** Its resident memory now; 0 where that can't be known. */
  readonly residentBytes: Effect.Effect<number>
  readonly output: Effect.Effect<string>
}

/** A crash of `FAULTS` may come at any time, also while the process stops. */
const isSetCrash = (end: number | NodeJS.Signals, faults: string) => end === "SIGKILL" && faults.includes("=crash")

export const make = (
  env: Readonly<Record<string, string>>,
  onStart: (url: string) => Effect.Effect<void>
): Effect.Effect<Service, ServiceProcess.ServiceProcessFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const epoch = yield* Ref.make(0)
    const next = Ref.update(epoch, (number) => number + 1)
    const start = (faults: string) =>
      Effect.gen(function* () {
        const scope = yield* Scope.make()
        const process = yield* ServiceProcess.start({
          env: {
            ...env,
            FAULTS: faults === "" ? "off" : faults,
            NODE_OPTIONS: `--max-old-space-size=${heapMegabytes} ${env["NODE_OPTIONS"] ?? ""}`
          }
        }).pipe(
          Scope.provide(scope),
          Effect.onError(() => Scope.close(scope, Exit.void))
        )
        yield* onStart(process.url!)
        yield* next
        return { process, scope, faults, isStopping: false }
      })
    const current = yield* Ref.make(yield* start(""))
    yield* Effect.addFinalizer(() => Effect.flatMap(Ref.get(current), ({ scope }) => Scope.close(scope, Exit.void)))

    const endOf = (process: ServiceProcess.ServiceProcess) => Effect.timeoutOption(process.exit, 0)
    return {
      url: Effect.map(Ref.get(current), ({ process }) => process.url!),
      isUp: Effect.flatMap(Ref.get(current), ({ isStopping, process }) =>
        isStopping ? Effect.succeed(false) : Effect.map(endOf(process), Option.isNone)
      ),
      epoch: Ref.get(epoch),
      restart: (signal, faults) =>
        Effect.gen(function* () {
          const { faults: set, process, scope } = yield* Ref.get(current)
          const already = yield* endOf(process)
          yield* Ref.update(current, (state) => ({ ...state, isStopping: true }))
          yield* next
          yield* process.signal(signal)
          const code = yield* process.exit
          yield* Scope.close(scope, Exit.void)
          yield* Ref.set(current, yield* start(faults))
          return signal === "SIGTERM" && already._tag === "None" && code !== 0 && !isSetCrash(code, set)
            ? `a stop ended with ${code}:\n${process.output().slice(-2_000)}`
            : undefined
          // A restart that ends half-way with the fuzzer's time would be followed by a second signal, which ends the process at once.
        }).pipe(Effect.uninterruptible),
      freeze: (millis) =>
        Effect.flatMap(Ref.get(current), ({ process }) =>
          Effect.andThen(process.signal("SIGSTOP"), Effect.sleep(millis)).pipe(
            Effect.ensuring(process.signal("SIGCONT"))
          )
        ),
      ended: Effect.gen(function* () {
        const { faults, isStopping, process } = yield* Ref.get(current)
        const end = yield* endOf(process)
        if (end._tag === "None" || isStopping || isSetCrash(end.value, faults)) return undefined
        return `the process ended with ${end.value}:\n${process.output().slice(-3_000)}`
      }),
      exit: Effect.flatMap(Ref.get(current), ({ process }) => Effect.asVoid(process.exit)),
      residentBytes: Effect.flatMap(Ref.get(current), ({ process }) =>
        Effect.promise(async () => {
          try {
            const status = await readFile(`/proc/${process.pid}/status`, "utf8")
            return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1] ?? 0) * 1_024
          } catch {
            return 0
          }
        })
      ),
      output: Effect.map(Ref.get(current), ({ process }) => process.output())
    }
  })
