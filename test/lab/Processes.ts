/**
 * The processes of a case: each has its own services over its own pool, and one or two actors.
 */
import { Context, Effect, Layer, Scope } from "effect"
import type { Dispatcher } from "../../src/outbox/Dispatcher.ts"
import type { LowWaterMarks } from "../../src/postgres/fast/LowWaterMarks.ts"
import type { HoldRetries } from "../../src/inbox/holds/HoldRetries.ts"
import type { ApplySlice } from "../../src/inbox/ApplySlice.ts"
import * as RecoverPayment from "../../src/application/RecoverPayment.ts"
import * as TaskWorker from "../../src/tasks/TaskWorker.ts"
import type { PgClient } from "@effect/sql-pg"
import { Actor, gate, type LabTime, surroundings } from "./Actor.ts"
import type { LabDatabase } from "./LabDatabase.ts"
import * as ModelBroker from "./ModelBroker.ts"
import * as ModelGateway from "./ModelGateway.ts"
import type { Batch } from "../../src/brokers/Broker.ts"
import {
  type Around,
  clientOf,
  consumerOf,
  dispatcherOf,
  type Parts,
  recoveryDelaysMillis,
  settings,
  type settingsOf,
  workerOf
} from "./Parts.ts"
import type { ClientServices, Request } from "./Requests.ts"
import { labHandler } from "./TaskRequests.ts"
import type { Reading } from "./ConsumerWork.ts"
import type { Hands } from "./TaskWork.ts"

interface ProcessOf<Role extends string, Services> {
  readonly role: Role
  readonly name: string
  readonly context: Context.Context<Services>
  readonly actors: ReadonlyArray<Actor>
}

/** Takes requests, one after another. */
export interface ClientProcess extends ProcessOf<"client", ClientServices> {
  readonly number: number
  readonly line: Array<Request>
}
export type DispatcherProcess = ProcessOf<"dispatcher", Dispatcher | LowWaterMarks>
/** Its first actor applies slices, the second one attempts what is held. */
export interface ConsumerProcess extends ProcessOf<"consumer", ApplySlice | HoldRetries> {
  /** The next offset by group and partition, as long as it owns the partition. */
  readonly positions: Map<string, { readonly next: number; readonly generation: number }>
  /** Subscribers whose holds it has looked at since the rows last changed. */
  readonly looked: Set<string>
  reading: Reading | undefined
  /** It takes no more work, and ends after its current slice. */
  leaves: boolean
  /** Its client has crashed, and starts again with the next poll. */
  stands: boolean
}
/** The services that task handlers need. */
export type WorkerServices = RecoverPayment.RecoverPayment | PgClient.PgClient
/** Its first actor runs tasks, the second one sends the heartbeat. */
export interface WorkerProcess extends ProcessOf<"worker", WorkerServices> {
  readonly worker: TaskWorker.TaskWorker<WorkerServices>
  readonly hands: Hands
}
export type Process = ClientProcess | DispatcherProcess | ConsumerProcess | WorkerProcess

/** Shared by the processes of a case: the systems outside, and the case's parts. */
export interface Environment {
  readonly database: LabDatabase["Service"]
  readonly log: ModelBroker.ModelLog
  readonly gateway: ModelGateway.ModelGatewayState
  readonly parts: Parts
  readonly settings: ReturnType<typeof settingsOf>
  readonly time: LabTime
  readonly random: () => number
  readonly titleOf: (batch: Batch) => string
  /** The lab's own tasks whose effect outside has happened. */
  readonly workDone: Set<string>
}

const build = <A>(environment: Environment, layer: Layer.Layer<A, never, Around>) =>
  Effect.gen(function* () {
    const { database, gateway, log, random, time, titleOf } = environment
    const around = yield* surroundings(database, time, random)
    const all = layer.pipe(
      Layer.provideMerge(
        Layer.mergeAll(settings, ModelBroker.layerActor(log, gate, titleOf), ModelGateway.layer(gateway, gate))
      ),
      Layer.provideMerge(Layer.succeedContext(around))
    )
    // The scope is never closed: a process of the lab is abandoned, as a killed one is.
    return yield* Layer.buildWithMemoMap(all, Layer.makeMemoMapUnsafe(), Scope.makeUnsafe())
  })

export const startClient = (environment: Environment, number: number, name: string, line: Array<Request>) =>
  Effect.map(build(environment, clientOf(environment.parts)), (context): ClientProcess => ({
    role: "client",
    name,
    number,
    line,
    actors: [new Actor(name)],
    context
  }))

export const startWorker = (environment: Environment, name: string) =>
  Effect.gen(function* () {
    const context = yield* build(environment, workerOf(environment.parts))
    const handlers = [
      RecoverPayment.handler({ delaysMillis: recoveryDelaysMillis, gatewayTimeoutMillis: 5_000 }),
      labHandler((taskId) => environment.workDone.add(taskId))
    ]
    const worker = yield* Effect.provideContext(TaskWorker.make<WorkerServices>(handlers), context).pipe(Effect.orDie)
    const process: WorkerProcess = {
      role: "worker",
      name,
      context,
      worker,
      actors: [new Actor(name), new Actor(`${name}'s heart`)],
      hands: { claimed: [], ended: [], looked: false, beatDue: false }
    }
    return process
  })

export const startDispatcher = (environment: Environment, name: string) =>
  Effect.map(
    build(environment, dispatcherOf(environment.parts, environment.settings)),
    (context): DispatcherProcess => ({
      role: "dispatcher",
      name,
      context,
      actors:
        environment.parts.workersPerLane === 1
          ? [new Actor(name)]
          : [new Actor(`${name}, worker 1,`), new Actor(`${name}, worker 2,`)]
    })
  )

export const startConsumer = (environment: Environment, name: string) =>
  Effect.map(build(environment, consumerOf(environment.parts, environment.settings)), (context): ConsumerProcess => ({
    role: "consumer",
    name,
    context,
    actors: [new Actor(name), new Actor(`${name}'s retries`)],
    positions: new Map(),
    looked: new Set(),
    reading: undefined,
    leaves: false,
    stands: false
  }))
