/** Failure injection: tests, the demo and operators of a test system set what happens at the points of Faults.ts. */
import { Context, Effect, Layer, Ref, Result, Schema, type Scope } from "effect"
import { type FaultPoint, Faults, type FaultsService } from "./Faults.ts"
import * as Spelling from "./Spelling.ts"

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

/** A point with its fault, for a log line: `pay.after-charge=delay, 3 times, of 250 ms`. */
export const describe = (point: FaultPoint, { action, delayMillis, times }: Fault): string =>
  `${point}=${action}${times === 1 ? "" : `, ${times} times`}${action === "delay" ? `, of ${delayMillis} ms` : ""}`

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
    /** Asks `take` as well, where nothing is set here: for faults that several processes share. One at a time. */
    readonly alsoTake: (
      take: (point: FaultPoint) => Effect.Effect<Fault | undefined>
    ) => Effect.Effect<void, never, Scope.Scope>
  }
>()("paid-once/platform/FaultControl") {}

/**
 * Switches faults on, with `initial` set from the start. A fault that is set, cleared or strikes is a line in the log: what follows from it
 * must not be taken for a failure of the service.
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

      let takeElsewhere: ((point: FaultPoint) => Effect.Effect<Fault | undefined>) | undefined

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

      /** Takes one use, and says that it strikes. */
      const strike = (point: FaultPoint) =>
        take(point).pipe(
          Effect.flatMap((fault) =>
            fault !== undefined || takeElsewhere === undefined ? Effect.succeed(fault) : takeElsewhere(point)
          ),
          Effect.tap((fault) =>
            fault === undefined
              ? Effect.void
              : Effect.logWarning(`a fault strikes on purpose: ${describe(point, { ...fault, times: 1 })}`)
          )
        )

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
        at: (point) => Effect.flatMap(strike(point), (fault) => before(point, fault)),
        around: (point, operation, lost) =>
          Effect.flatMap(strike(point), (fault) => {
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
        set: (point, fault) =>
          Ref.update(faults, (map) => new Map(map).set(point, fault)).pipe(
            Effect.andThen(Effect.logWarning(`a fault is set: ${describe(point, fault)}`))
          ),
        clear: (point) =>
          Ref.update(faults, (map) => {
            const rest = new Map(map)
            rest.delete(point)
            return rest
          }).pipe(Effect.andThen(Effect.logInfo(`the fault at ${point} is cleared`))),
        list: Effect.map(Ref.get(faults), (map) => [...map].map(([point, fault]) => ({ point, ...fault }))),
        alsoTake: (other) =>
          Effect.acquireRelease(
            Effect.sync(() => void (takeElsewhere = other)),
            () => Effect.sync(() => void (takeElsewhere = undefined))
          )
      }).pipe(Context.add(Faults, service))
    })
  )

const killThisProcess: Effect.Effect<never> = Effect.suspend(() => {
  process.kill(process.pid, "SIGKILL")
  return Effect.never
})

/** The points that a program has, each with the actions that mean something there. */
export type Catalogue = ReadonlyMap<FaultPoint, ReadonlyArray<FaultAction>>

/** No point of the program has this name. */
export class FaultPointUnknown extends Schema.TaggedError<FaultPointUnknown>()("FaultPointUnknown", {
  point: Schema.String,
  known: Schema.Array(Schema.String)
}) {
  override get message() {
    const meant = Spelling.nearest(this.point, this.known, maxSlips)
    return `there is no fault point ${this.point}${meant === undefined ? "" : ` (${meant}?)`}; there are ${this.known.join(", ")}`
  }
}

/** The point is there, and this can't happen at it. */
export class FaultImpossible extends Schema.TaggedError<FaultImpossible>()("FaultImpossible", {
  point: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `${this.point} ${this.reason}`
  }
}

/** The point, if the program has it, and this action means something there. */
export const check = (
  point: string,
  action: FaultAction,
  known: Catalogue
): Result.Result<FaultPoint, FaultPointUnknown | FaultImpossible> => {
  const actions = known.get(point as FaultPoint)
  if (actions === undefined) return Result.fail(new FaultPointUnknown({ point, known: [...known.keys()] }))
  if (!actions.includes(action)) {
    return Result.fail(new FaultImpossible({ point, reason: `has no action ${action}; it has ${actions.join(", ")}` }))
  }
  return Result.succeed(point as FaultPoint)
}

const decodeAction = Schema.decodeUnknownResult(FaultAction)
const decodeFault = Schema.decodeUnknownResult(Fault)

/** More would not be a slip of the hand. */
const maxSlips = 3

const syntax = `point=action[:times] or point=delay:times:millis, with action ${FaultAction.literals.join(", ")}`

/** Reads one fault, or says what is wrong with it. */
const parseOne = (part: string, known: Catalogue | undefined): Result.Result<readonly [FaultPoint, Fault], string> => {
  const match = /^([a-z-]+\.[a-z-]+)=([a-z-]+)(?::(\d{1,9}))?(?::(\d{1,6}))?$/.exec(part)
  const action = decodeAction(match?.[2])
  if (match === null || Result.isFailure(action)) return Result.fail(`"${part}" is not ${syntax}`)
  const point = match[1] as FaultPoint
  const checked = known === undefined ? Result.succeed(point) : check(point, action.success, known)
  if (Result.isFailure(checked)) return Result.fail(checked.failure.message)
  if ((action.success === "delay") !== (match[4] !== undefined)) {
    return Result.fail(`"${part}" is not ${syntax}: a delay has milliseconds, and no other action has`)
  }
  const fault = { action: action.success, times: Number(match[3] ?? 1), delayMillis: Number(match[4] ?? 0) }
  return Result.mapBoth(decodeFault(fault), {
    onFailure: () => `"${part}" is out of bounds: 1 to 999999999 times, and a delay of at most 600000 ms`,
    onSuccess: (decoded) => [point, decoded] as const
  })
}

/**
 * Reads faults as an environment variable carries them: `point=action`, `point=action:times` or `point=delay:times:millis`,
 * comma separated; an empty text arms none. Fails with a sentence that names the part that is wrong. With a catalogue, a point or action that it does not have is wrong.
 */
export const parse = (
  text: string,
  known?: Catalogue
): Result.Result<ReadonlyArray<readonly [FaultPoint, Fault]>, string> => {
  const parts = text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "")
  if (parts.length === 0 && text.trim() !== "") return Result.fail(`a list without a fault is not ${syntax}`)
  return Result.flatMap(Result.all(parts.map((part) => parseOne(part, known))), (faults) => {
    const twice = faults.find(([point], index) => faults.findIndex(([other]) => other === point) < index)
    return twice === undefined ? Result.succeed(faults) : Result.fail(`${twice[0]} is there twice`)
  })
}
