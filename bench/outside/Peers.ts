/** The other relays that a reader may know, each in its usual setting: `bench/peers/README.md` says what each promises. */
import { Effect, Redacted } from "effect"
import { Environment } from "../Environment.ts"
import { aggregateCount, aggregates, dataOf } from "../Workload.ts"
import * as Child from "./Child.ts"
import { asItIs, at, type Contender, isInstalled, nodeOptions, notInstalled } from "./Contenders.ts"

const script = at("../peers/Peer.js")

/** Whether the relays of others are there, too. */
export const areAllInstalled = (): boolean =>
  ["pg-boss", "graphile-worker", "pg-transactional-outbox"].every(isInstalled)

/** A peer of `bench/peers/relays`. */
const peer = (options: {
  readonly name: string
  readonly file: string
  readonly env?: Readonly<Record<string, string>>
  readonly tables: ReadonlyArray<string>
  readonly left: string
  /** False for a relay that sees only what is written while it runs. */
  readonly findsBacklog?: boolean
}): Contender => {
  const env = { ...options.env, PEER: options.file }
  const helper = Effect.gen(function* () {
    if (!areAllInstalled()) return yield* Effect.die(notInstalled)
    const { databaseUrl } = yield* Environment
    return yield* Child.start(script, {
      ...env,
      DATABASE_URL: Redacted.value(databaseUrl),
      KAFKA_BROKERS: "",
      NODE_OPTIONS: nodeOptions
    })
  })
  return {
    name: options.name,
    named: asItIs,
    key: options.name.replaceAll(/\W+/g, "-"),
    script,
    relay: env,
    writer: { file: script, env: { ...env, PEER_ROLE: "writer" } },
    prepare: Effect.scoped(Effect.flatMap(helper, (child) => child.call("tables"))),
    tables: options.tables,
    queue: options.tables[0]!,
    archive: undefined,
    left: options.left,
    fill:
      options.findsBacklog === false
        ? undefined
        : (count, topic) =>
            Effect.scoped(
              Effect.flatMap(helper, (child) =>
                child.call("fill", {
                  topic,
                  aggregateIds: aggregates(),
                  turns: Math.ceil(count / aggregateCount),
                  data: JSON.parse(dataOf(400)) as unknown
                })
              )
            ),
    isStrict: false
  }
}

/** The loop of the articles. */
export const popular = peer({
  name: "popular 60 lines",
  file: "popular",
  tables: ["popular_outbox"],
  left: "SELECT FROM popular_outbox WHERE published_at IS NULL LIMIT 1"
})

export const pgBoss = peer({
  name: "pg-boss",
  file: "pg-boss",
  tables: ["pgboss.job_common"],
  left: "SELECT FROM pgboss.job WHERE name = 'publish' AND state < 'completed' LIMIT 1"
})

const graphile = (queues: "on" | "off") =>
  peer({
    name: `graphile-worker${queues === "on" ? ", queues" : ""}`,
    file: "graphile-worker",
    env: { PEER_QUEUES: queues },
    tables: ["graphile_worker._private_jobs", "graphile_worker._private_job_queues"],
    left: "SELECT FROM graphile_worker._private_jobs LIMIT 1"
  })

/** As most use it: ten jobs side by side. */
export const graphileWorker = graphile("off")
/** A named queue for each aggregate, which keeps its order. */
export const graphileWorkerQueues = graphile("on")

export const libraryPolling = peer({
  name: "pg-transactional-outbox",
  file: "pg-transactional-outbox",
  tables: ["peer_library.polled"],
  left: "SELECT FROM peer_library.polled WHERE processed_at IS NULL LIMIT 1"
})

/** Needs `wal_level = logical`. */
export const libraryReplication = peer({
  name: "pg-transactional-outbox, WAL",
  file: "pg-transactional-outbox",
  env: { PEER_LISTENER: "replication" },
  tables: ["peer_library.logged"],
  left: "SELECT FROM peer_library.logged WHERE processed_at IS NULL LIMIT 1",
  findsBacklog: false
})

export const all = [popular, pgBoss, graphileWorker, graphileWorkerQueues, libraryPolling, libraryReplication] as const
