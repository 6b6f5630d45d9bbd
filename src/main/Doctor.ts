/** The doctor: its checks, on connections of its own that can't write. */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { PgClient } from "@effect/sql-pg"
import { Effect, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import { PrometheusMetrics } from "effect/observability"
import * as Path from "node:path"
import * as BehindGateway from "../application/doctor/BehindGateway.ts"
import * as BehindTopic from "../application/doctor/BehindTopic.ts"
import * as BooksCheck from "../application/doctor/BooksCheck.ts"
import * as MailCheck from "../application/doctor/MailCheck.ts"
import * as MoneyChecks from "../application/doctor/MoneyChecks.ts"
import { GatewayLedger } from "../application/GatewayLedger.ts"
import { GatewaySettings } from "../application/Gateway.ts"
import { emailType } from "../application/tasks/Email.ts"
import { paymentRecover } from "../application/tasks/PaymentRecover.ts"
import { StatusReport } from "../application/views/StatusReport.ts"
import { BrokerUnavailable, TopicUnavailable } from "../brokers/Broker.ts"
import * as EmbeddedLog from "../brokers/embedded/EmbeddedLog.ts"
import * as Leftovers from "../cli/drill/Leftovers.ts"
import { commandSettings } from "../CommandSettings.ts"
import type { AppConfig } from "../Config.ts"
import * as ConstraintChecks from "../operations/doctor/ConstraintChecks.ts"
import * as FunctionChecks from "../operations/doctor/FunctionChecks.ts"
import * as DatabaseChecks from "../operations/doctor/DatabaseChecks.ts"
import { type Check, psql, runAll, throughPsql } from "../operations/doctor/Check.ts"
import { Doctor } from "../operations/doctor/Doctor.ts"
import * as FlowChecks from "../operations/doctor/FlowChecks.ts"
import * as IndexChecks from "../operations/doctor/IndexChecks.ts"
import * as LockChecks from "../operations/doctor/LockChecks.ts"
import * as MetricChecks from "../operations/doctor/MetricChecks.ts"
import * as MissingTables from "../operations/doctor/MissingTables.ts"
import * as PlanChecks from "../operations/doctor/PlanChecks.ts"
import * as RightChecks from "../operations/doctor/RightChecks.ts"
import * as TableChecks from "../operations/doctor/TableChecks.ts"
import * as TaskChecks from "../operations/doctor/TaskChecks.ts"
import * as TopicChecks from "../operations/doctor/TopicChecks.ts"
import * as UpkeepChecks from "../operations/doctor/UpkeepChecks.ts"
import * as VacuumChecks from "../operations/doctor/VacuumChecks.ts"
import { PauseDecisions } from "../operations/pauses/PauseDecisions.ts"
import { ConsumerLag } from "../operations/reports/ConsumerLag.ts"
import { Queue } from "../outbox/Queue.ts"
import { DatabaseSettings } from "../platform/DatabaseSettings.ts"
import { innermost } from "../platform/Innermost.ts"
import * as ReservedPool from "../postgres/ReservedPool.ts"
import { TaskClaim } from "../tasks/TaskClaim.ts"
import { operatorOn } from "./Commands.ts"
import { taskTypeNames, topicNames } from "./Names.ts"
import { embeddedDirectory, root, sets } from "./Storage.ts"
import * as TopicHistory from "./TopicHistory.ts"

/**
 * The bounds of the doctor's sessions. They can't write, they wait for no lock that others hold, and a statement that takes seconds is one that loads the
 * server: it ends, and its check says so.
 */
const bounds = {
  default_transaction_read_only: "on",
  statement_timeout: "5000",
  lock_timeout: "200",
  // Others would write each definition otherwise, and make a finding of it. The check of the settings names them.
  standard_conforming_strings: "on",
  quote_all_identifiers: "off"
}

/** One for a transaction and what it explains, and one beside it. */
const connections = 2

const kafkaDescriptions = (config: AppConfig, brokers: ReadonlyArray<string>) =>
  Layer.unwrap(Effect.promise(async () => (await import("./Kafka.ts")).descriptions(config, brokers)))

const embeddedDescriptions = Layer.effect(
  TopicChecks.TopicDescriptions,
  Effect.map(PgClient.PgClient, (client) =>
    TopicChecks.TopicDescriptions.of({
      describe: (topic) =>
        EmbeddedLog.make(client)
          .describe(topic)
          .pipe(
            Effect.mapError((cause) => new BrokerUnavailable({ operation: "describe", cause })),
            Effect.flatMap((info) =>
              info === undefined
                ? Effect.fail(new TopicUnavailable({ topic, reason: "it does not exist" }))
                : Effect.succeed(info)
            )
          )
    })
  )
)

/** The gateway's ledger; undefined where the gateway is the sandbox inside the service. */
const ledgerOf = ({ gatewayKeyRetentionMillis, gatewayTimeoutMillis, gatewayUrl }: AppConfig) =>
  gatewayUrl === undefined
    ? undefined
    : GatewayLedger.layerHttp.pipe(
        Layer.provide(
          Layer.succeed(GatewaySettings, {
            ...gatewayUrl,
            timeoutMillis: gatewayTimeoutMillis,
            keyRetentionMillis: gatewayKeyRetentionMillis
          })
        ),
        Layer.provide(NodeHttpClient.layerUndici)
      )

/** The topic tells, or, where it is in the database, the gateway. */
const behindCheck = (config: AppConfig): Check<SqlClient.SqlClient> => {
  const { kafkaBrokers } = config
  if (kafkaBrokers === undefined) {
    const ledger = ledgerOf(config)
    return ledger === undefined
      ? BehindTopic.embedded
      : { ...BehindGateway.check, run: Effect.provide(BehindGateway.check.run, ledger) }
  }
  return TopicHistory.check(config, kafkaBrokers)
}

const gatewayCheck = (config: AppConfig): Check => {
  const ledger = ledgerOf(config)
  return ledger === undefined
    ? MoneyChecks.noGateway
    : { ...MoneyChecks.gateway, run: Effect.provide(MoneyChecks.gateway.run, ledger) }
}

type Needs =
  | ConsumerLag
  | DatabaseChecks.Needs
  | PauseDecisions
  | Queue
  | StatusReport
  | TaskClaim
  | TopicChecks.TopicDescriptions

/** All checks, in the order in which a person reads them. */
const checksOf = (config: AppConfig, scrape: MetricChecks.Scrape): ReadonlyArray<Check<Needs>> => [
  // What it finds is mended before all others.
  behindCheck(config),
  // What it finds is the cause of much that others would find.
  Leftovers.check,
  ...DatabaseChecks.checks(sets),
  LockChecks.check,
  MissingTables.check(sets),
  IndexChecks.check(sets),
  ConstraintChecks.check(sets),
  TableChecks.check(sets),
  FunctionChecks.check(sets),
  RightChecks.check,
  ...VacuumChecks.checks,
  ...UpkeepChecks.checks,
  BooksCheck.check,
  ...PlanChecks.checks(taskTypeNames),
  ...FlowChecks.checks,
  ...TaskChecks.checks({ types: taskTypeNames, withSideEffects: [emailType.name, paymentRecover.name] }),
  ...TopicChecks.checks(topicNames),
  gatewayCheck(config),
  MailCheck.check({ smtpUrl: config.smtpUrl, directory: Path.join(config.dataDirectory, "mail") }),
  ...MoneyChecks.checks,
  ...MetricChecks.checks(scrape, Path.join(root, "docs/alerts/rules.yml"))
]

const services = (config: AppConfig) =>
  Layer.mergeAll(
    operatorOn(config),
    Queue.layer,
    TaskClaim.layer,
    config.kafkaBrokers === undefined ? embeddedDescriptions : kafkaDescriptions(config, config.kafkaBrokers)
  ).pipe(Layer.provideMerge(ReservedPool.layer("doctor", connections, bounds)), Layer.provide(commandSettings(config)))

/** How psql is opened on the embedded database (docs/operations.md, psql). */
const embeddedPsql = (config: AppConfig) => {
  const directory = embeddedDirectory(config)
  return `PGPASSWORD=$(cat "${Path.join(directory, "password")}") psql -h "${Path.join(directory, "data")}" -U paid_once paid_once`
}

/** Runs the checks on the database of {@link DatabaseSettings}. A database that can't be reached is the one finding then. */
export const examine = (config: AppConfig, scrape: MetricChecks.Scrape) =>
  Effect.scoped(
    Effect.gen(function* () {
      const settings = commandSettings(config)
      const built = yield* Effect.result(Effect.provide(Layer.build(services(config)), settings))
      if (built._tag === "Failure") {
        return yield* runAll([unreachable(innermost(built.failure))])
      }
      return yield* runAll(checksOf(config, scrape)).pipe(Effect.provide(built.success), Effect.provide(settings))
    }).pipe(
      Effect.map((report) => (config.databaseUrl === undefined ? throughPsql(report, embeddedPsql(config)) : report))
    )
  )

const unreachable = (reason: string): Check => ({
  group: "postgres",
  name: "reachable",
  run: Effect.succeed({
    _tag: "Told",
    told: "",
    findings: [
      {
        problem: `the database can't be reached, so nothing else was looked at: ${reason}`,
        fix: "Bring Postgres up, or mend DATABASE_URL; where tables and functions are missing, a search_path may hide them (SHOW search_path); otherwise make them by paid-once migrate",
        command: psql("SELECT 1")
      }
    ]
  })
})

/** The doctor inside a process of the service, by its own metrics. */
export const layer = (config: AppConfig) =>
  Layer.effect(
    Doctor,
    Effect.flatMap(DatabaseSettings, (settings) =>
      Doctor.make(Effect.provideService(examine(config, PrometheusMetrics.format()), DatabaseSettings, settings))
    )
  )
