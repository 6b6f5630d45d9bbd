import { Data, Effect, type Scope } from "effect"
import * as LocalKafka from "./LocalKafka.ts"
import * as TcpProxy from "./TcpProxy.ts"

/**
 * Finds a Kafka on this machine: one that runs already, one in Docker, or one that Java and Maven start here.
 *
 * **Gotchas**
 *
 * The Docker branch has not run against a real Docker daemon yet. {@link decide} has passed over a client without a daemon, and the branch
 * has run against a stand-in for `docker` that starts Kafka 4.1.1 with the given settings.
 *
 * If a process is killed while `docker run` still pulls the image, its container may stay. A start on another port works; a start on the
 * same port fails with "in use".
 */

/** Kafka 4 brokers do not run on an older one. */
const minJavaVersion = 17

/** A daemon that is up answers within a second; one that hangs must not hang the tests. */
const dockerInfoTimeout = "10 seconds"

/** The first run pulls the image, some 200 MB. */
const dockerRunTimeout = "10 minutes"

export const dockerImage = `apache/kafka:${LocalKafka.kafkaVersion}`

export type KafkaSource = Data.TaggedEnum<{
  /** `KAFKA_BROKERS` names a running Kafka. */
  readonly Running: { readonly bootstrapServers: string }
  readonly Docker: {}
  readonly JavaAndMaven: {}
  /** `missing` tells the reader what to install or to start. */
  readonly Unavailable: { readonly missing: string }
}>
export const KafkaSource = Data.taggedEnum<KafkaSource>()

/** This machine can't run a Kafka. With `CI=true` the caller should fail, otherwise skip with a visible message. */
export class KafkaUnavailable extends Data.TaggedError("KafkaUnavailable")<{ readonly missing: string }> {
  override get message() {
    return this.missing
  }
}

/** The client alone is not enough: only a daemon's answer counts. */
const dockerRuns: Effect.Effect<boolean> = LocalKafka.execute("docker", [
  "info",
  "--format",
  "{{.ServerVersion}}"
]).pipe(
  Effect.timeout(dockerInfoTimeout),
  // Some clients exit with 0 although the daemon did not answer; the version is empty then.
  Effect.map(({ stdout }) => stdout.trim() !== ""),
  Effect.catch(() => Effect.succeed(false))
)

/** 17 of `openjdk version "17.0.15"`, 0 without a Java. */
const javaVersion: Effect.Effect<number> = LocalKafka.execute(LocalKafka.javaCommand, ["-version"]).pipe(
  Effect.map(({ stderr, stdout }) => Number(/version "(\d+)/.exec(stdout + stderr)?.[1] ?? 0)),
  Effect.catch(() => Effect.succeed(0))
)

const mavenRuns: Effect.Effect<boolean> = LocalKafka.execute("mvn", ["-v"]).pipe(
  Effect.as(true),
  Effect.catch(() => Effect.succeed(false))
)

/**
 * Whether `LocalKafka` can run here, with or without Docker. Tests that kill or freeze brokers, or put proxies in front of them, need it.
 */
export const decideLocalKafka: Effect.Effect<Extract<KafkaSource, { readonly _tag: "JavaAndMaven" | "Unavailable" }>> =
  Effect.gen(function* () {
    const version = yield* javaVersion
    const maven = yield* mavenRuns
    if (version >= minJavaVersion && maven) return KafkaSource.JavaAndMaven()
    const java = `Java ${minJavaVersion} or later (${version === 0 ? "none found" : `found ${version}`})`
    const wanted = [...(version < minJavaVersion ? [java] : []), ...(maven ? [] : ["Maven (no mvn found)"])].join(
      " and "
    )
    return KafkaSource.Unavailable({ missing: `install ${wanted}` })
  })

/** Docker if its daemon answers, else Java and Maven, else a list of what is missing. */
export const decideLocal: Effect.Effect<Exclude<KafkaSource, { readonly _tag: "Running" }>> = Effect.gen(function* () {
  if (yield* dockerRuns) return KafkaSource.Docker()
  const local = yield* decideLocalKafka
  return local._tag === "JavaAndMaven"
    ? local
    : KafkaSource.Unavailable({
        missing: `no Kafka here: set KAFKA_BROKERS to a running one, or start a Docker daemon, or ${local.missing}`
      })
})

/** `KAFKA_BROKERS` if set, else as {@link decideLocal}. Starts nothing. */
export const decide: Effect.Effect<KafkaSource> = Effect.suspend((): Effect.Effect<KafkaSource> => {
  const bootstrapServers = process.env.KAFKA_BROKERS?.trim()
  return bootstrapServers === undefined || bootstrapServers === ""
    ? decideLocal
    : Effect.succeed(KafkaSource.Running({ bootstrapServers }))
})

/** The image takes each of Kafka's settings as a variable, and drops all of its own defaults once one is given. */
const containerEnvironment = (port: number): ReadonlyArray<string> =>
  Object.entries({
    // Any id will do, as long as it does not change: a kept volume stores it.
    CLUSTER_ID: "cGFpZC1vbmNlLWthZmthMQ",
    KAFKA_NODE_ID: 1,
    KAFKA_PROCESS_ROLES: "broker,controller",
    KAFKA_CONTROLLER_QUORUM_VOTERS: "1@localhost:29093",
    // The same port inside and outside, so that the advertised address is right in both places.
    KAFKA_LISTENERS: `PLAINTEXT://:${port},CONTROLLER://:29093`,
    KAFKA_ADVERTISED_LISTENERS: `PLAINTEXT://127.0.0.1:${port}`,
    KAFKA_LISTENER_SECURITY_PROTOCOL_MAP: "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    KAFKA_INTER_BROKER_LISTENER_NAME: "PLAINTEXT",
    KAFKA_CONTROLLER_LISTENER_NAMES: "CONTROLLER",
    KAFKA_LOG_DIRS: "/var/lib/kafka/data",
    // The settings below are LocalKafka's; the reasons are there.
    KAFKA_AUTO_CREATE_TOPICS_ENABLE: false,
    KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR: 1,
    KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS: 4,
    KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR: 1,
    KAFKA_TRANSACTION_STATE_LOG_MIN_ISR: 1,
    KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS: 4,
    KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR: 1,
    KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR: 1,
    KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS: 0,
    KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS: 1_000,
    KAFKA_BROKER_SESSION_TIMEOUT_MS: 2_000,
    KAFKA_BROKER_HEARTBEAT_INTERVAL_MS: 250
  }).flatMap(([name, value]) => ["-e", `${name}=${value}`])

/**
 * One Kafka node in a container, ready when the effect succeeds. The container is removed with the scope, or with this process.
 *
 * With `volume` the data stays in a Docker volume of that name. A directory of the host would belong to the container's user.
 */
export const makeContainer = (
  options: { readonly port?: number | undefined; readonly volume?: string | undefined } = {}
): Effect.Effect<{ readonly bootstrapServers: string }, LocalKafka.LocalKafkaError, Scope.Scope> =>
  Effect.gen(function* () {
    const port = options.port ?? (yield* TcpProxy.freePorts(1))[0]!
    if (!(yield* TcpProxy.isPortFree(port))) {
      return yield* new LocalKafka.LocalKafkaError({ problem: `port ${port} of 127.0.0.1 is in use` })
    }
    const name = `paid-once-kafka-${port}`
    const remove = Effect.ignore(LocalKafka.execute("docker", ["rm", "-f", "-v", name]))
    // A container that a crash left behind. The port is free, so nobody uses the container.
    yield* remove
    const setLiving = yield* LocalKafka.makeWatchdog(undefined)
    const volume = options.volume === undefined ? [] : ["-v", `${options.volume}:/var/lib/kafka/data`]
    const stop =
      options.volume === undefined ? Effect.void : Effect.ignore(LocalKafka.execute("docker", ["stop", name]))
    yield* Effect.addFinalizer(() => Effect.andThen(stop, remove))
    setLiving([`container:${name}`])
    yield* LocalKafka.execute("docker", [
      "run",
      "-d",
      "--name",
      name,
      "-p",
      `127.0.0.1:${port}:${port}`,
      ...volume,
      ...containerEnvironment(port),
      dockerImage
    ]).pipe(
      Effect.timeoutOrElse({
        duration: dockerRunTimeout,
        orElse: () =>
          Effect.fail(
            new LocalKafka.LocalKafkaError({ problem: `docker run ${dockerImage} took over ${dockerRunTimeout}` })
          )
      })
    )
    const bootstrapServers = `127.0.0.1:${port}`
    yield* LocalKafka.awaitReady(bootstrapServers, [1]).pipe(
      Effect.catch(({ problem }) =>
        LocalKafka.execute("docker", ["logs", "--tail", "30", name]).pipe(
          Effect.flatMap(({ stderr, stdout }) =>
            Effect.fail(
              new LocalKafka.LocalKafkaError({ problem: `${problem}\n--- docker logs ${name}\n${stdout}${stderr}` })
            )
          )
        )
      )
    )
    return { bootstrapServers }
  })

/** A one-node Kafka from the first source that this machine has. A Kafka that this effect has started ends with the scope. */
export const acquire: Effect.Effect<
  { readonly bootstrapServers: string },
  KafkaUnavailable | LocalKafka.LocalKafkaError,
  Scope.Scope
> = Effect.flatMap(
  decide,
  KafkaSource.$match({
    Running: ({ bootstrapServers }) => Effect.as(LocalKafka.awaitReady(bootstrapServers), { bootstrapServers }),
    Docker: () => makeContainer(),
    // No test kills this one, so a long timeout keeps it in the cluster even if the machine stands still.
    JavaAndMaven: () => LocalKafka.make({ nodes: 1, properties: { "broker.session.timeout.ms": "60000" } }),
    Unavailable: ({ missing }) => Effect.fail(new KafkaUnavailable({ missing }))
  })
)
