/** Failure injection: tests, the demo and operators of a test system set what happens at the points of Faults.ts. */
import { Array, Context, Effect, Layer, Ref, Result, Schema } from "effect"
import { type FaultPoint, Faults, type FaultsService } from "./Faults.ts"

const FaultPointSchema = Schema.TemplateLiteral([Schema.NonEmptyString, ".", Schema.NonEmptyString])

/**
 * - `crash`: Ends the process by SIGKILL. No finalizer runs.
 * - `fail`: Throws a defect.
 * - `delay`: Waits `delayMillis`, then continues.
 * - `duplicate`: Repeats the operation at this point.
 * - `lose-ack`: Runs the operation, and reports it as failed.
 */
export const FaultAction = Schema.Literals(["crash", "fail", "delay", "duplicate", "lose-ack"])
export type FaultAction = typeof FaultAction.Type

/** A fault that is set: what happens, and how many times before the point is quiet again. */
export const Fault = Schema.Struct({
  action: FaultAction,
  times: Schema.Int.check(Schema.isGreaterThan(0)),
  delayMillis: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 600_000 }))
})
export type Fault = typeof Fault.Type

/** Thrown at a point whose fault is `fail`. */
export class FaultInjected extends Error {
  override readonly name = "FaultInjected"
  constructor(point: FaultPoint) {
    super(`fault injected at ${point}`)
  }
}

/** Sets and clears faults; present only where faults are switched on. */
export class FaultControl extends Context.Service<
  FaultControl,
  {
    readonly set: (point: FaultPoint, fault: Fault) => Effect.Effect<void>
    readonly clear: (point: FaultPoint) => Effect.Effect<void>
    readonly list: Effect.Effect<ReadonlyArray<Fault & { readonly point: FaultPoint }>>
  }
>()("paid-once/platform/FaultControl") {}

/**
 * Switches faults on, with `initial` set from the start.
 *
 * `crash` is what a crash does: SIGKILL to this process, unless a test that runs several actors in one process says otherwise.
 */
export const layer = (
  initial: ReadonlyArray<readonly [FaultPoint, Fault]> = [],
  crash: Effect.Effect<never> = killThisProcess
): Layer.Layer<FaultControl> =>
  Layer.effectContext(
    Effect.gen(function* () {
      const faults = yield* Ref.make<ReadonlyMap<FaultPoint, Fault>>(new Map(initial))

      /** Takes one use of what is set at `point`. */
      const take = (point: FaultPoint) =>
        Ref.modify(faults, (map): readonly [Fault | undefined, ReadonlyMap<FaultPoint, Fault>] => {
          const fault = map.get(point)
          if (fault === undefined) return [undefined, map]
          const rest = new Map(map)
          if (fault.times > 1) rest.set(point, { ...fault, times: fault.times - 1 })
          else rest.delete(point)
          return [fault, rest]
        })

      const before = (point: FaultPoint, fault: Fault | undefined): Effect.Effect<void> => {
        switch (fault?.action) {
          case "crash":
            return crash
          case "fail":
            return Effect.die(new FaultInjected(point))
          case "delay":
            return Effect.sleep(fault.delayMillis)
          default:
            return Effect.void
        }
      }

      const service: FaultsService = {
        at: (point) => Effect.flatMap(take(point), (fault) => before(point, fault)),
        around: (point, operation, lost) =>
          Effect.flatMap(take(point), (fault) => {
            const run = Effect.andThen(before(point, fault), operation)
            if (fault?.action === "duplicate") return Effect.andThen(operation, operation)
            if (fault?.action === "lose-ack")
              return Effect.andThen(
                operation,
                Effect.suspend(() => Effect.fail(lost()))
              )
            return run
          })
      }
      return Context.make(FaultControl, {
        set: (point, fault) => Ref.update(faults, (map) => new Map(map).set(point, fault)),
        clear: (point) =>
          Ref.update(faults, (map) => {
            const rest = new Map(map)
            rest.delete(point)
            return rest
          }),
        list: Effect.map(Ref.get(faults), (map) => [...map].map(([point, fault]) => ({ point, ...fault })))
      }).pipe(Context.add(Faults, service))
    })
  )

const killThisProcess: Effect.Effect<never> = Effect.suspend(() => {
  process.kill(process.pid, "SIGKILL")
  return Effect.never
})

/**
 * Reads faults as an environment variable carries them: `point=action`, `point=action:times` or `point=delay:times:millis`,
 * comma separated. Fails with a sentence that names the part that is wrong.
 */
export const parse = (text: string): Result.Result<ReadonlyArray<readonly [FaultPoint, Fault]>, string> => {
  const decodePoint = Schema.decodeUnknownResult(FaultPointSchema)
  const decodeFault = Schema.decodeUnknownResult(Fault)
  const parts = text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "")
  return Result.all(
    Array.map(parts, (part) => {
      const [name = "", action = "", times = "1", delayMillis = "0"] = part.split(/[=:]/)
      return Result.all([
        decodePoint(name),
        decodeFault({ action, times: Number(times), delayMillis: Number(delayMillis) })
      ]).pipe(
        Result.mapError(
          () => `"${part}" is not point=action[:times[:delayMillis]] with action ${FaultAction.literals.join(", ")}`
        )
      )
    })
  )
}
