import { Deferred, Effect, Schedule, Schema, type Scope } from "effect"
import { type Admin, Kafka, logLevel, type Producer } from "kafkajs"
import * as childProcess from "node:child_process"
import { createHash, randomBytes } from "node:crypto"
import * as fs from "node:fs"
import * as net from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import * as TcpProxy from "./TcpProxy.ts"

/**
 * A real Apache Kafka as a scoped resource: one or three KRaft nodes, each a JVM of its own, without Docker.
 *
 * **When to use**
 *
 * For tests that need what only a real broker does: elections, lost brokers, its own answers. `KafkaSource.ts` decides whether this
 * machine has to start one at all.
 *
 * **Details**
 *
 * Maven downloads the jars once, into `node_modules/.cache/paid-once`. It needs Java 17, Maven, `sh` and a Unix. A node has three
 * listeners: one for clients, which may advertise a proxy's port; one for the other nodes and the tests' own checks, never through a proxy;
 * and one for the controllers.
 *
 * **How the JVMs end when the test process is killed**
 *
 * A watchdog, a small shell script, reads the pids of the living JVMs from a pipe that this process holds open. When this process ends for
 * any reason, the kernel closes the pipe. Then the watchdog kills the last pids that it has read, and removes the temporary data.
 *
 * **Gotchas**
 *
 * Waits run on the fiber's clock: use `it.live`.
 */

export const kafkaVersion = "4.1.1"

/** A Kafka did not start; the problem quotes the end of its log. */
export class LocalKafkaError extends Schema.TaggedError<LocalKafkaError>()("LocalKafkaError", {
  problem: Schema.String
}) {
  override get message() {
    return this.problem
  }
}

export interface Broker extends TcpProxy.Address {
  readonly nodeId: number
  /** The node's own listener; equal to `host` and `port` unless it advertises another port. */
  readonly direct: TcpProxy.Address
  readonly logFile: string
  /** SIGKILL, then waits until the process is gone. Does nothing to a node that is down. */
  readonly kill: Effect.Effect<void>
  /** SIGSTOP: the process stands still, its sockets stay open. */
  readonly freeze: Effect.Effect<void>
  /** SIGCONT. */
  readonly thaw: Effect.Effect<void>
  /** SIGTERM, then waits until it has shut down. Fails when that takes too long; the node is killed then. */
  readonly stop: Effect.Effect<void, LocalKafkaError>
  /**
   * Starts the node again on its data and ports, and waits until it answers. Only waits if it already runs.
   *
   * A node of three answers only when a second one is up: start them together when all are down.
   */
  readonly start: Effect.Effect<void, LocalKafkaError>
}

export interface LocalKafka<B extends Broker = Broker> {
  /** The advertised addresses, for clients. */
  readonly bootstrapServers: string
  /** The same cluster without the proxies, for the test's own writes and reads. */
  readonly directBootstrapServers: string
  readonly brokers: ReadonlyArray<B>
  /** The addresses of {@link Options.listeners}, in their order. */
  readonly listeners: ReadonlyArray<string>
}

export interface Options {
  readonly nodes: 1 | 3
  /**
   * The data stays in this directory after the scope's end. Without it the data is in a temporary directory. Relative to the working
   * directory.
   */
  readonly dataDirectory?: string | undefined
  /** The first node's port for clients; by default a free one. */
  readonly port?: number | undefined
  /** More settings of a node (`server.properties`), which override ours. */
  readonly properties?: Readonly<Record<string, string>> | undefined
  /** More listeners for clients, for one node. */
  readonly listeners?: ReadonlyArray<Listener> | undefined
  /** Users of SCRAM, as `kafka-storage format --add-scram` takes them: `SCRAM-SHA-256=[name=…,password=…]`. */
  readonly scramUsers?: ReadonlyArray<string> | undefined
}

/** A listener for clients. Its settings are properties that begin with `listener.name.NAME.`, the name in small letters. */
export interface Listener {
  /** In capitals. */
  readonly name: string
  readonly protocol: "PLAINTEXT" | "SSL" | "SASL_PLAINTEXT" | "SASL_SSL"
}

const projectDirectory = path.resolve(import.meta.dirname, "../..")
export const cacheDirectory = path.join(projectDirectory, "node_modules/.cache/paid-once")
const host = "127.0.0.1"

/** 43 MB take 5 s over a good line; ten minutes are enough for a very bad one. */
const downloadTimeout = "10 minutes"

/** Leftovers of interrupted downloads are removed once they are older than any running download can be. */
const staleDownloadMillis = 3_600_000

/** Measured: 1 s on an idle machine. */
const formatTimeout = "3 minutes"

/** Measured: 2 to 5 s on two cores. Enough for a busy CI machine that starts three nodes at once. */
const startTimeout = "3 minutes"

/** Measured: 1 s. A clean stop moves leaders away first, and in a half-dead cluster only its own timeouts end that. */
const stopTimeout = "30 seconds"

/** Far shorter than a start, and long enough not to take CPU from the starting JVMs. */
const probeInterval = "100 millis"

/** A starting or frozen broker may not answer a request; asking again is cheap. */
const probeTimeoutMillis = 3_000

/** The smallest count that still spreads groups; each partition adds files and start time. */
const internalTopicPartitions = 4

/** One group for each partition of the offsets topic, so that a probe asks every group coordinator. `"a".hashCode() % 4` is 1, and so on. */
const probeGroups = ["a", "b", "c", "d"]

/** Enough of a stack trace to show its cause, in a readable error message. */
const logTailLines = 30

/** Runs a program: its output, or an error that quotes it. */
export const execute = (
  command: string,
  args: ReadonlyArray<string>,
  options?: { readonly cwd?: string | undefined }
): Effect.Effect<{ readonly stdout: string; readonly stderr: string }, LocalKafkaError> =>
  Effect.callback((resume) => {
    const child = childProcess.execFile(command, [...args], { cwd: options?.cwd }, (error, stdout, stderr) => {
      if (error === null) return resume(Effect.succeed({ stdout, stderr }))
      const output = lastLines(`${stdout}\n${stderr}`.trim() || error.message)
      resume(Effect.fail(new LocalKafkaError({ problem: `${command} ${args[0] ?? ""} failed:\n${output}` })))
    })
    return Effect.sync(() => void child.kill("SIGKILL"))
  })

const lastLines = (text: string): string => text.trimEnd().split("\n").slice(-logTailLines).join("\n")

const tail = (file: string): string => {
  try {
    return `\n--- the end of ${file}\n${lastLines(fs.readFileSync(file, "utf8"))}`
  } catch {
    return ""
  }
}

/** The Java that Maven would use as well. */
export const javaCommand = process.env.JAVA_HOME === undefined ? "java" : path.join(process.env.JAVA_HOME, "bin/java")

/** slf4j-simple is the smallest logger that shows why a node did not start; Kafka's own libraries bring none. */
const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>paid-once</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>${kafkaVersion}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`

const removeStaleDownloads = Effect.sync(() => {
  for (const name of fs.readdirSync(cacheDirectory)) {
    const directory = path.join(cacheDirectory, name)
    const stale =
      name.startsWith(`kafka-${kafkaVersion}.`) && Date.now() - fs.statSync(directory).mtimeMs > staleDownloadMillis
    if (stale) fs.rmSync(directory, { recursive: true, force: true })
  }
})

/**
 * The directory with Kafka's jars, downloaded through Maven if it is not there yet.
 *
 * The download goes to a directory of its own, which gets its final name in one step. So an interrupted download never looks complete. Of
 * two concurrent downloads the first one wins.
 */
export const jars: Effect.Effect<string, LocalKafkaError> = Effect.gen(function* () {
  const directory = path.join(cacheDirectory, `kafka-${kafkaVersion}`)
  if (fs.existsSync(directory)) return directory
  yield* Effect.logInfo(`downloading Apache Kafka ${kafkaVersion} through Maven (43 MB, once) into ${directory}`)
  fs.mkdirSync(cacheDirectory, { recursive: true })
  yield* removeStaleDownloads
  const partial = yield* temporaryDirectory(`${directory}.`)
  fs.writeFileSync(path.join(partial, "pom.xml"), pom)
  yield* execute("mvn", [
    "dependency:copy-dependencies",
    "-q",
    "-B",
    "-f",
    path.join(partial, "pom.xml"),
    `-DoutputDirectory=${partial}`
  ]).pipe(
    Effect.timeoutOrElse({
      duration: downloadTimeout,
      orElse: () => Effect.fail(new LocalKafkaError({ problem: `Maven did not bring Kafka within ${downloadTimeout}` }))
    })
  )
  yield* Effect.sync(() => fs.renameSync(partial, directory)).pipe(
    Effect.catchDefect((defect) => (fs.existsSync(directory) ? Effect.void : Effect.die(defect)))
  )
  return directory
}).pipe(Effect.scoped)

export const temporaryDirectory = (prefix: string): Effect.Effect<string, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(prefix)),
    (directory) =>
      Effect.sync(() => fs.rmSync(directory, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 }))
  )

// Each line replaces the list of what to end. `read` fails at the end of the pipe, which is the end of the process that held it. A killed
// JVM may hold its files for a moment, so the directory is removed until it is gone.
const watchdogScript = `
living=""
while read -r line; do living=$line; done
for one in $living; do
  case $one in
    container:*) docker rm -f -v "\${one#container:}" ;;
    *) kill -9 "$one" ;;
  esac
done
for attempt in 1 2 3 4 5 6 7 8 9 10; do
  [ -n "$1" ] && [ -e "$1" ] || exit 0
  rm -rf "$1"
  sleep 0.1
done
`

/**
 * Ends processes (by pid) or containers (as `container:name`) and removes a directory when this process dies, also by SIGKILL.
 *
 * The effect takes the whole list of what is alive at each call. The scope's end stops the watchdog without any of this: a clean end is the
 * caller's finalizer.
 */
export const makeWatchdog = (
  directory: string | undefined
): Effect.Effect<(living: ReadonlyArray<string | number>) => void, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      // Detached: a Ctrl-C in the terminal goes to the whole foreground group, and must not take the watchdog.
      const child = childProcess.spawn("sh", ["-c", watchdogScript, "paid-once-watchdog", directory ?? ""], {
        detached: true,
        stdio: ["pipe", "ignore", "ignore"]
      })
      child.on("error", () => {})
      child.stdin.on("error", () => {})
      // A watchdog alone does not keep its process alive.
      child.unref()
      return child
    }),
    (child) => Effect.sync(() => void child.kill("SIGKILL"))
  ).pipe(Effect.map((child) => (living) => void child.stdin.write(`${living.join(" ")}\n`)))

/**
 * Takes a kept data directory for this process. A second Kafka on it would overwrite the first one's settings before it failed.
 *
 * The lock is a Unix socket on which the owner listens. Unlike a pid file it can't outlive its owner; only its name can. The name is short
 * and in the temporary directory, because the path of a socket has at most about a hundred characters.
 */
const own = (directory: string): Effect.Effect<void, LocalKafkaError, Scope.Scope> => {
  const name = createHash("sha256").update(directory).digest("hex").slice(0, 16)
  const file = path.join(os.tmpdir(), `paid-once-${name}.sock`)
  const taken = new LocalKafkaError({ problem: `${directory} is in use by another Kafka` })
  const listen = Effect.callback<net.Server, NodeJS.ErrnoException>((resume) => {
    const server = net.createServer((socket) => socket.destroy())
    server.once("error", (error) => resume(Effect.fail(error)))
    server.listen(file, () => resume(Effect.succeed(server)))
  })
  const ownerAnswers = Effect.callback<boolean>((resume) => {
    const socket = net.connect(file)
    socket.once("connect", () => {
      socket.destroy()
      resume(Effect.succeed(true))
    })
    socket.once("error", () => resume(Effect.succeed(false)))
  })
  return Effect.acquireRelease(
    listen.pipe(
      Effect.catch((error) =>
        error.code !== "EADDRINUSE"
          ? Effect.die(error)
          : Effect.flatMap(ownerAnswers, (answers) => {
              if (answers) return Effect.fail(taken)
              fs.rmSync(file, { force: true })
              return Effect.mapError(listen, () => taken)
            })
      )
    ),
    (server) => Effect.sync(() => server.close())
  ).pipe(Effect.asVoid)
}

interface Ports {
  readonly client: number
  readonly advertised: number
  readonly internal: number
  readonly controller: number
}

interface Jvm {
  readonly child: childProcess.ChildProcess
  readonly exited: Deferred.Deferred<string>
}

interface Node {
  readonly nodeId: number
  readonly ports: Ports
  readonly directory: string
  readonly logFile: string
  jvm: Jvm | undefined
}

const serverProperties = (
  node: Node,
  nodes: ReadonlyArray<Pick<Node, "nodeId" | "ports">>,
  {
    listeners = [],
    ports,
    properties = {}
  }: Pick<Options, "listeners" | "properties"> & { readonly ports: ReadonlyArray<number> }
): string => {
  const addresses = listeners.map(({ name }, index) => `,${name}://${host}:${ports[index]}`).join("")
  const several = nodes.length > 1
  const replicas = several ? 3 : 1
  const minInSync = several ? 2 : 1
  return Object.entries({
    "process.roles": "broker,controller",
    "node.id": node.nodeId,
    "controller.quorum.voters": nodes.map(({ nodeId, ports }) => `${nodeId}@${host}:${ports.controller}`).join(","),
    listeners: `CLIENT://${host}:${node.ports.client},INTERNAL://${host}:${node.ports.internal},CONTROLLER://${host}:${node.ports.controller}${addresses}`,
    "advertised.listeners": `CLIENT://${host}:${node.ports.advertised},INTERNAL://${host}:${node.ports.internal}${addresses}`,
    "listener.security.protocol.map": [
      "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
      ...listeners.map(({ name, protocol }) => `${name}:${protocol}`)
    ].join(","),
    "inter.broker.listener.name": "INTERNAL",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": path.join(node.directory, "data"),
    // A missing topic is a test's mistake, and must be visible.
    "auto.create.topics.enable": false,
    "default.replication.factor": replicas,
    "min.insync.replicas": minInSync,
    "offsets.topic.replication.factor": replicas,
    "offsets.topic.num.partitions": internalTopicPartitions,
    "transaction.state.log.replication.factor": replicas,
    "transaction.state.log.min.isr": minInSync,
    "transaction.state.log.num.partitions": internalTopicPartitions,
    "share.coordinator.state.topic.replication.factor": replicas,
    "share.coordinator.state.topic.min.isr": minInSync,
    "share.coordinator.state.topic.num.partitions": internalTopicPartitions,
    // A test's group is complete when it starts; the default waits 3 s for more members.
    "group.initial.rebalance.delay.ms": 0,
    // Consumers of tests die, and the group should notice within a second.
    "group.min.session.timeout.ms": 1_000,
    // After this time a dead node's partitions get new leaders, and a killed node may come back. With the default of 9 s a restart after
    // SIGKILL takes 12 s. Below 2 s a short stall of two busy cores would look like a death.
    "broker.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 250,
    // The cleaner takes 128 MB of heap by default, half of the JVM's heap here. 2 MB hold the keys of a test's compacted topics.
    "log.cleaner.dedupe.buffer.size": 2_097_152,
    // A test has few connections, and fewer threads save memory and start time.
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 2,
    ...properties
  })
    .map(([key, value]) => `${key}=${value}\n`)
    .join("")
}

const jvmArguments = (libraries: string, heap: string): ReadonlyArray<string> => [
  heap,
  // Start time and memory matter more to a test than throughput.
  "-XX:+UseSerialGC",
  "-XX:TieredStopAtLevel=1",
  // Without this each JVM has a file in /tmp, which stays when it is killed.
  "-XX:-UsePerfData",
  "-Djava.awt.headless=true",
  "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
  "-Dorg.slf4j.simpleLogger.showDateTime=true",
  "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
  "-Dlog4j2.level=OFF",
  "-cp",
  path.join(libraries, "*")
]

/** Kafka's command line reads an id that starts with a dash as an option. */
const newClusterId = Effect.sync(() => randomBytes(16).toString("base64url")).pipe(
  Effect.repeat({ until: (id) => !id.startsWith("-") })
)

/**
 * Formats the node's storage once. The mark is written after the format, so an interrupted format is repeated from the start.
 */
const format = Effect.fnUntraced(function* (
  libraries: string,
  node: Node,
  clusterId: string,
  scramUsers: ReadonlyArray<string>
) {
  const mark = path.join(node.directory, "formatted")
  if (fs.existsSync(mark)) return
  fs.rmSync(path.join(node.directory, "data"), { recursive: true, force: true })
  const properties = path.join(node.directory, "server.properties")
  yield* execute(javaCommand, [
    ...jvmArguments(libraries, "-Xmx64m"),
    "kafka.tools.StorageTool",
    "format",
    "-t",
    clusterId,
    "-c",
    properties,
    ...scramUsers.flatMap((user) => ["--add-scram", user])
  ]).pipe(
    Effect.timeoutOrElse({
      duration: formatTimeout,
      orElse: () =>
        Effect.fail(new LocalKafkaError({ problem: `Kafka did not format ${node.directory} within ${formatTimeout}` }))
    })
  )
  fs.writeFileSync(mark, "")
})

/** Connects, and disconnects with the scope: kafkajs leaves timers and sockets behind when a failed client is not disconnected. */
const connected = <C extends Admin | Producer>(client: C): Effect.Effect<C, unknown, Scope.Scope> =>
  Effect.acquireRelease(Effect.succeed(client), (client) =>
    Effect.ignore(Effect.tryPromise(() => client.disconnect()))
  ).pipe(Effect.tap((client) => Effect.tryPromise({ try: () => client.connect(), catch: (cause) => cause })))

/**
 * Asks the cluster once whether it is ready. It must know the expected nodes, every group must have a coordinator that has loaded its
 * offsets, and producer ids must be handed out. Right after the start each of these may still answer "loading".
 */
export const probe = (bootstrapServers: string, nodeIds: ReadonlyArray<number>): Effect.Effect<void, unknown> =>
  Effect.gen(function* () {
    const kafka = new Kafka({
      clientId: "paid-once-probe",
      brokers: bootstrapServers.split(","),
      logLevel: logLevel.NOTHING,
      requestTimeout: probeTimeoutMillis,
      retry: { retries: 0 }
    })
    const admin = yield* connected(kafka.admin())
    const ask = <A>(question: () => Promise<A>) => Effect.tryPromise({ try: question, catch: (cause) => cause })
    const { brokers } = yield* ask(() => admin.describeCluster())
    const missing = nodeIds.filter((nodeId) => brokers.every((broker) => broker.nodeId !== nodeId))
    if (missing.length > 0)
      return yield* Effect.fail(new Error(`the cluster does not know node ${missing.join(", ")} yet`))
    yield* Effect.forEach(probeGroups, (groupId) => ask(() => admin.fetchOffsets({ groupId, topics: [] })), {
      discard: true
    })
    // kafkajs does not allow an idempotent producer that never retries.
    yield* connected(kafka.producer({ idempotent: true, allowAutoTopicCreation: false, retry: { retries: 1 } }))
  }).pipe(Effect.scoped)

/** Asks until the cluster is ready. When the time is over the error contains the last refusal. */
export const awaitReady = (
  bootstrapServers: string,
  nodeIds: ReadonlyArray<number> = []
): Effect.Effect<void, LocalKafkaError> =>
  Effect.suspend(() => {
    let refusal: unknown
    return probe(bootstrapServers, nodeIds).pipe(
      Effect.tapError((error) => Effect.sync(() => void (refusal = error))),
      Effect.retry(Schedule.spaced(probeInterval)),
      Effect.timeoutOrElse({
        duration: startTimeout,
        orElse: () =>
          Effect.fail(
            new LocalKafkaError({
              problem: `Kafka at ${bootstrapServers} was not ready within ${startTimeout}: ${String(refusal)}`
            })
          )
      }),
      // `retry` has handled every error but the timeout's.
      Effect.catch((error) => (error instanceof LocalKafkaError ? Effect.fail(error) : Effect.die(error)))
    )
  })

/**
 * Starts a Kafka of one or three nodes, ready when the effect succeeds.
 *
 * `advertise` may put a proxy in front of each node before it starts. It gets the node's own address and returns the port that clients are
 * told.
 *
 * With three nodes topics have three replicas by default, and a write needs two.
 *
 * **Details**
 *
 * At the end of the scope a temporary Kafka is killed and its data removed; one with a `dataDirectory` is stopped cleanly.
 */
export const make = <E = never, R = never>(
  options: Options & {
    readonly advertise?:
      | ((node: { readonly nodeId: number } & TcpProxy.Address) => Effect.Effect<number, E, R>)
      | undefined
  }
): Effect.Effect<LocalKafka, LocalKafkaError | E, R | Scope.Scope> =>
  Effect.gen(function* () {
    if (options.port !== undefined && !(yield* TcpProxy.isPortFree(options.port))) {
      return yield* new LocalKafkaError({ problem: `port ${options.port} of ${host} is in use` })
    }
    const libraries = yield* jars
    const kept = options.dataDirectory !== undefined
    const root =
      options.dataDirectory === undefined
        ? yield* temporaryDirectory(path.join(os.tmpdir(), "paid-once-kafka-"))
        : path.resolve(options.dataDirectory)
    if (kept) yield* own(root)
    const setLiving = yield* makeWatchdog(kept ? undefined : root)

    const nodeIds = Array.from({ length: options.nodes }, (_, index) => index + 1)
    const free = yield* TcpProxy.freePorts(options.nodes * 3 + (options.listeners?.length ?? 0))
    const ports = free.slice(options.nodes * 3)
    const nodes = yield* Effect.forEach(nodeIds, (nodeId, index) =>
      Effect.gen(function* () {
        const client = index === 0 && options.port !== undefined ? options.port : free[index * 3]!
        const advertised =
          options.advertise === undefined ? client : yield* options.advertise({ nodeId, host, port: client })
        const directory = path.join(root, `node-${nodeId}`)
        const node: Node = {
          nodeId,
          ports: { client, advertised, internal: free[index * 3 + 1]!, controller: free[index * 3 + 2]! },
          directory,
          logFile: path.join(directory, "kafka.log"),
          jvm: undefined
        }
        return node
      })
    )

    const launch = (node: Node) =>
      Effect.sync(() => {
        if (node.jvm !== undefined) return node.jvm
        const log = fs.openSync(node.logFile, "a")
        // Detached like the watchdog: Ctrl-C goes to this process alone, and the scope decides how the JVM ends.
        const child = childProcess.spawn(
          javaCommand,
          [...jvmArguments(libraries, "-Xmx256m"), "kafka.Kafka", path.join(node.directory, "server.properties")],
          { detached: true, stdio: ["ignore", log, log] }
        )
        fs.closeSync(log)
        const jvm: Jvm = { child, exited: Deferred.makeUnsafe() }
        node.jvm = jvm
        const exited = (how: string) => {
          if (node.jvm === jvm) node.jvm = undefined
          tellWatchdog()
          Deferred.doneUnsafe(jvm.exited, Effect.succeed(how))
        }
        child.once("error", (error) => exited(error.message))
        child.once("exit", (code, signal) => exited(signal ?? `code ${code}`))
        tellWatchdog()
        return jvm
      })
    const tellWatchdog = () => setLiving(nodes.flatMap(({ jvm }) => jvm?.child.pid ?? []))

    const signal = (node: Node, name: NodeJS.Signals) => Effect.sync(() => void node.jvm?.child.kill(name))
    const kill = (node: Node) =>
      Effect.suspend(() => {
        const { jvm } = node
        if (jvm === undefined) return Effect.void
        jvm.child.kill("SIGKILL")
        return Effect.asVoid(Deferred.await(jvm.exited))
      })
    const stop = (node: Node) =>
      Effect.suspend(() => {
        const { jvm } = node
        if (jvm === undefined) return Effect.void
        // A frozen process handles SIGTERM only after SIGCONT.
        jvm.child.kill("SIGCONT")
        jvm.child.kill("SIGTERM")
        return Deferred.await(jvm.exited).pipe(
          Effect.timeoutOrElse({
            duration: stopTimeout,
            orElse: () =>
              Effect.andThen(
                kill(node),
                Effect.fail(
                  new LocalKafkaError({
                    problem: `node ${node.nodeId} did not stop within ${stopTimeout}${tail(node.logFile)}`
                  })
                )
              )
          }),
          Effect.asVoid
        )
      })
    const start = (node: Node, expected: ReadonlyArray<number>) =>
      Effect.flatMap(launch(node), (jvm) =>
        awaitReady(`${host}:${node.ports.internal}`, expected).pipe(
          Effect.mapError(({ problem }) => new LocalKafkaError({ problem: `${problem}${tail(node.logFile)}` })),
          Effect.raceFirst(
            Effect.flatMap(Deferred.await(jvm.exited), (how) =>
              Effect.fail(
                new LocalKafkaError({
                  problem: `node ${node.nodeId} of Kafka ended (${how}) before it was ready${tail(node.logFile)}`
                })
              )
            )
          )
        )
      )
    const concurrently = { concurrency: "unbounded", discard: true } as const

    yield* Effect.addFinalizer(() => {
      const end = kept ? (node: Node) => Effect.catch(stop(node), Effect.logWarning) : kill
      return Effect.forEach(nodes, end, concurrently)
    })

    for (const node of nodes) {
      fs.mkdirSync(node.directory, { recursive: true })
      // One log per run: a kept log would grow for ever, and its end would be of another run.
      fs.rmSync(node.logFile, { force: true })
      // Written at every start: the ports of a kept cluster may have changed.
      fs.writeFileSync(
        path.join(node.directory, "server.properties"),
        serverProperties(node, nodes, { ...options, ports })
      )
    }
    const clusterIdFile = path.join(root, "cluster.id")
    if (!fs.existsSync(clusterIdFile)) fs.writeFileSync(clusterIdFile, yield* newClusterId)
    const clusterId = fs.readFileSync(clusterIdFile, "utf8")
    yield* Effect.forEach(nodes, (node) => format(libraries, node, clusterId, options.scramUsers ?? []), concurrently)
    yield* Effect.forEach(nodes, (node) => start(node, nodeIds), concurrently)

    const brokers = nodes.map((node): Broker => ({
      nodeId: node.nodeId,
      host,
      port: node.ports.advertised,
      direct: { host, port: node.ports.internal },
      logFile: node.logFile,
      kill: kill(node),
      freeze: signal(node, "SIGSTOP"),
      thaw: signal(node, "SIGCONT"),
      stop: stop(node),
      start: start(node, [node.nodeId])
    }))
    return {
      bootstrapServers: brokers.map(({ port }) => `${host}:${port}`).join(","),
      directBootstrapServers: brokers.map(({ direct }) => `${host}:${direct.port}`).join(","),
      brokers,
      listeners: ports.map((port) => `${host}:${port}`)
    }
  })

/** A Kafka whose nodes each advertise a proxy of their own to clients. Traffic between brokers does not pass the proxies. */
export const makeProxied = (
  options: Options
): Effect.Effect<LocalKafka<Broker & { readonly proxy: TcpProxy.KafkaProxy }>, LocalKafkaError, Scope.Scope> =>
  Effect.gen(function* () {
    const proxies = new Map<number, TcpProxy.KafkaProxy>()
    const kafka = yield* make({
      ...options,
      advertise: ({ nodeId, ...upstream }) =>
        Effect.map(TcpProxy.makeKafka({ upstream }), (proxy) => {
          proxies.set(nodeId, proxy)
          return proxy.port
        })
    })
    return { ...kafka, brokers: kafka.brokers.map((broker) => ({ ...broker, proxy: proxies.get(broker.nodeId)! })) }
  })
