/**
 * A dispatcher as a process of its own: the mechanism's layers, without orders and payments. Started by Fleet.ts. It prints the lanes that
 * it believes to own, and writes to a file when it works on which lane.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Config, Console, Effect, Layer, References, Result, Stream, SubscriptionRef } from "effect"
import { openSync, writeSync } from "node:fs"
import * as Net from "node:net"
import * as KafkaBroker from "../../src/brokers/kafkajs/KafkaBroker.ts"
import { laneCount } from "../../src/outbox/Lane.ts"
import { ControlConnection } from "../../src/platform/ControlConnection.ts"
import { type Membership, Ownership } from "../../src/platform/Ownership.ts"
import * as FaultInjection from "../../src/platform/FaultInjection.ts"
import * as FleetProtocol from "./FleetProtocol.ts"
import * as ShortWaits from "./ShortWaits.ts"
import * as TestProcess from "./TestProcess.ts"

/** The machine's monotonic clock, which all its processes share. */
const stamp = () => process.hrtime.bigint()

/** Writes a line when a flight of a lane begins and when it ends. The lines are written at once, so that a killed process leaves them. */
const witnessed = (file: number, membership: Membership): Membership => ({
  ...membership,
  enter: (lane) => {
    const granted = membership.enter(lane)
    if (granted) writeSync(file, `enter ${lane} ${stamp()}\n`)
    return granted
  },
  leave: (lane) => {
    writeSync(file, `leave ${lane} ${stamp()}\n`)
    membership.leave(lane)
  }
})

/** Ownership that reports: it prints the owned lanes, and writes the flights to the witness file. */
const watchedOwnership = (settings: FleetProtocol.Settings) =>
  Layer.effect(
    Ownership,
    Effect.gen(function* () {
      const ownership = yield* Ownership
      const control = yield* ControlConnection
      const file = settings.witnessFile === "" ? undefined : openSync(settings.witnessFile, "a")
      const tell = (lanes: ReadonlyArray<number>) =>
        Effect.flatMap(SubscriptionRef.get(control.session), (session) =>
          Console.log(JSON.stringify({ backendPid: session?.backendPid ?? null, lanes }))
        )
      return Ownership.of({
        join: Effect.fnUntraced(function* (group, count) {
          const membership = yield* ownership.join(group, count)
          if (group !== "dispatcher" || count !== laneCount) return membership
          yield* Effect.forkScoped(Stream.runForEach(membership.changes, tell))
          return file === undefined ? membership : witnessed(file, membership)
        })
      })
    })
  )

const broker = (settings: FleetProtocol.Settings) =>
  KafkaBroker.layer.pipe(
    Layer.provide(
      Layer.succeed(KafkaBroker.KafkaSettings, {
        brokers: (settings.kafka ?? "").split(","),
        prefix: settings.kafkaPrefix,
        createTopics: true,
        replication: 1,
        sendTimeoutMillis: settings.sendTimeoutMillis,
        sessionTimeoutMillis: 10_000,
        clientId: "fleet"
      })
    ),
    Layer.provide(
      settings.kafkaProxyPort === null
        ? Layer.empty
        : Layer.succeed(KafkaBroker.KafkaConnect, () => Net.connect(settings.kafkaProxyPort ?? 0, "127.0.0.1"))
    )
  )

const program = Effect.gen(function* () {
  const settings = yield* FleetProtocol.settings
  const dispatcher =
    settings.kafka === null ? TestProcess.dispatcher : TestProcess.dispatcherOver(() => broker(settings))
  yield* Layer.build(
    dispatcher.pipe(
      Layer.provide(watchedOwnership(settings)),
      Layer.provideMerge(TestProcess.outbox),
      Layer.provide(FaultInjection.layer(Result.getOrThrow(FaultInjection.parse(settings.faults)))),
      Layer.provide(FleetProtocol.layerOf(settings)),
      Layer.provide(
        Layer.succeed(
          References.MinimumLogLevel,
          yield* Config.LogLevel("LOG_LEVEL").pipe(Config.withDefault("None" as const))
        )
      )
    )
  ).pipe(ShortWaits.upTo(settings.longestWaitMillis ?? Infinity))
  yield* Console.log(JSON.stringify({ ready: true, url: null }))
  return yield* Effect.never
}).pipe(Effect.scoped)

NodeRuntime.runMain(program)
