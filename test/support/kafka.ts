import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Cause, Config, Console, Effect, Exit, Schedule } from "effect"
import * as path from "node:path"
import * as KafkaSource from "./KafkaSource.ts"
import * as LocalKafka from "./LocalKafka.ts"
import * as TcpProxy from "./TcpProxy.ts"

// `npm run kafka`: a one-node Kafka to develop against, with data that stays, until Ctrl-C.

const dataDirectory = path.resolve(import.meta.dirname, "../../.data/kafka")
const volume = "paid-once-kafka"

/** Kafka's usual port. */
const defaultPort = 9092

/** After a kill -9 the watchdog needs a moment to end the JVM, and a restart should not trip over its port. */
const portPatience = Schedule.upTo(Schedule.spaced("100 millis"), { times: 20 })

const awaitPort = (port: number) =>
  TcpProxy.isPortFree(port).pipe(
    Effect.flatMap((free) =>
      free
        ? Effect.void
        : Effect.fail(
            new LocalKafka.LocalKafkaError({
              problem: `port ${port} of 127.0.0.1 is in use: stop what listens there, or choose another one with KAFKA_PORT`
            })
          )
    ),
    Effect.retry(portPatience)
  )

const program = Effect.gen(function* () {
  if (process.argv.length > 2) {
    return yield* new LocalKafka.LocalKafkaError({
      problem: "npm run kafka takes no arguments; KAFKA_PORT is the port, 9092 if it is not set"
    })
  }
  const port = yield* Config.Port("KAFKA_PORT").pipe(Config.withDefault(defaultPort))
  yield* awaitPort(port)
  const source = yield* KafkaSource.decideLocal
  switch (source._tag) {
    case "Unavailable":
      return yield* new KafkaSource.KafkaUnavailable(source)
    case "Docker":
      yield* Console.log(`starting ${KafkaSource.dockerImage} in Docker, data in the volume ${volume} …`)
      yield* KafkaSource.makeContainer({ port, volume })
      break
    case "JavaAndMaven":
      yield* LocalKafka.jars
      yield* Console.log(`starting Apache Kafka ${LocalKafka.kafkaVersion}, data in ${dataDirectory} …`)
      yield* LocalKafka.make({ nodes: 1, port, dataDirectory })
      break
  }
  const brokers = `KAFKA_BROKERS=127.0.0.1:${port}`
  yield* Console.log(`ready: ${brokers}\n\n  ${brokers} npm start\n\nCtrl-C stops it.`)
  return yield* Effect.onInterrupt(Effect.never, () => Console.log("stopping …"))
}).pipe(
  Effect.scoped,
  Effect.tapError((error) => Console.error(error.message))
)

NodeRuntime.runMain(program, {
  // The message has been printed; a stack trace would only hide it.
  disableErrorReporting: true,
  teardown: (exit, onExit) => {
    const stopped = Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)
    if (!stopped && Cause.hasDies(exit.cause)) console.error(Cause.pretty(exit.cause))
    onExit(stopped ? 0 : 1)
  }
})
