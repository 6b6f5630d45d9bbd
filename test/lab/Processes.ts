/**
 * The processes of a case: each with its own services over its own pool, and one actor (or two, for a mistake) that does its work.
 */
import { Context, Effect, Layer, Scope } from "effect"
import type { DeadLetters } from "../../src/messaging/outbox/DeadLetters.ts"
import type { Dispatcher } from "../../src/messaging/outbox/Dispatcher.ts"
import type { OutboxQueue } from "../../src/messaging/outbox/OutboxQueue.ts"
import type { ApplySlice } from "../../src/messaging/inbox/ApplySlice.ts"
import type { Idempotency } from "../../src/application/Idempotency.ts"
import type { Orders } from "../../src/application/Orders.ts"
import type { PayOrder } from "../../src/application/PayOrder.ts"
import type { RecoverPayment } from "../../src/application/RecoverPayment.ts"
import type { PlaceOrder } from "../../src/application/PlaceOrder.ts"
import type { PgClient } from "@effect/sql-pg"
import { Actor, gate, type LabTime, surroundings } from "./Actor.ts"
import type { LabDatabase } from "./LabDatabase.ts"
import * as ModelBroker from "./ModelBroker.ts"
import * as ModelGateway from "./ModelGateway.ts"
import type { Batch } from "../../src/messaging/broker/Broker.ts"
import { type Around, clientOf, consumerOf, dispatcherOf, type Parts, settings, type settingsOf } from "./Parts.ts"
import { orderLetters, type Request } from "./Requests.ts"

interface ProcessOf<Role extends string, Services> {
  readonly role: Role
  readonly name: string
  readonly context: Context.Context<Services>
  readonly actors: ReadonlyArray<Actor>
}

/** Takes requests, one after another. */
export interface ClientProcess extends ProcessOf<
  "client",
  DeadLetters | PlaceOrder | PayOrder | RecoverPayment | Orders | Idempotency | PgClient.PgClient
> {
  readonly number: number
  readonly line: Array<Request>
  /** Takes the next request of the line. */
  readonly take: () => Request | undefined
}
export type DispatcherProcess = ProcessOf<"dispatcher", Dispatcher | OutboxQueue>
export interface ConsumerProcess extends ProcessOf<"consumer", ApplySlice> {
  /** Where it goes on reading, by partition, as long as the partition is its own. */
  readonly positions: Map<number, { readonly next: number; readonly generation: number }>
}
export type Process = ClientProcess | DispatcherProcess | ConsumerProcess

/** What the processes of a case share: the systems outside, and the case's parts. */
export interface Environment {
  readonly database: LabDatabase["Service"]
  readonly log: ModelBroker.ModelLog
  readonly gateway: ModelGateway.ModelGatewayState
  readonly parts: Parts
  readonly settings: ReturnType<typeof settingsOf>
  readonly time: LabTime
  readonly random: () => number
  readonly titleOf: (batch: Batch) => string
}

const build = <A>(environment: Environment, paying: () => string, layer: Layer.Layer<A, never, Around>) =>
  Effect.gen(function* () {
    const { database, gateway, log, random, time, titleOf } = environment
    const around = yield* surroundings(database, time, random)
    const all = layer.pipe(
      Layer.provideMerge(
        Layer.mergeAll(settings, ModelBroker.layerActor(log, gate, titleOf), ModelGateway.layer(gateway, gate, paying))
      ),
      Layer.provideMerge(Layer.succeedContext(around))
    )
    // The scope is never closed: a process of the lab ends by being forgotten, as a killed one does.
    return yield* Layer.buildWithMemoMap(all, Layer.makeMemoMapUnsafe(), Scope.makeUnsafe())
  })

export const startClient = (environment: Environment, number: number, name: string, line: Array<Request>) =>
  Effect.gen(function* () {
    const actor = new Actor(name)
    let paying: Request | undefined
    const context = yield* build(
      environment,
      () => orderLetters[paying?.order ?? -1] ?? "?",
      clientOf(environment.parts)
    )
    const client: ClientProcess = {
      role: "client",
      name,
      number,
      line,
      actors: [actor],
      context,
      // The order of the request under way is the one that a capture is for.
      take: () => (paying = line.shift())
    }
    return client
  })

export const startDispatcher = (environment: Environment, name: string) =>
  Effect.map(
    build(environment, () => "", dispatcherOf(environment.parts, environment.settings)),
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
  Effect.map(
    build(environment, () => "", consumerOf(environment.parts)),
    (context): ConsumerProcess => ({
      role: "consumer",
      name,
      context,
      actors: [new Actor(name)],
      positions: new Map()
    })
  )
