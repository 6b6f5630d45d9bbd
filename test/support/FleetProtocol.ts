/** The protocol between a test and its processes: settings go to the process in a variable, and lines of JSON come back. */
import { Config, Layer, Redacted, Schema } from "effect"
import { LaneWorkersSettings } from "../../src/outbox/LaneWorkers.ts"
import { QueueSettings } from "../../src/outbox/Queue.ts"
import { ControlSettings } from "../../src/platform/ControlConnection.ts"
import { WakeupSettings } from "../../src/platform/Wakeups.ts"
import * as TestDatabase from "./TestDatabase.ts"

export const Settings = Schema.Struct({
  databaseUrl: Schema.String,
  /** `host:port`, several with commas; null for the embedded broker. */
  kafka: Schema.NullOr(Schema.String),
  kafkaPrefix: Schema.String,
  /** As in the service's FAULTS. */
  faults: Schema.String,
  sessionTimeoutMillis: Schema.Number,
  sendTimeoutMillis: Schema.Number,
  pollMillis: Schema.Number,
  notify: Schema.Boolean,
  batchSize: Schema.Number,
  /** The file to which a dispatcher writes when it enters and leaves a lane; empty for none. */
  witnessFile: Schema.String,
  /** Longer waits of a dispatcher never end (ShortWaits.ts); null for a normal clock. */
  longestWaitMillis: Schema.NullOr(Schema.Number),
  /** The port of 127.0.0.1 through which all connections to Kafka go; null for direct ones. */
  kafkaProxyPort: Schema.NullOr(Schema.Number),
  /** A writer's work: concurrent transactions, the wait between two of them, and the number of aggregates. */
  writers: Schema.Number,
  pauseMillis: Schema.Number,
  aggregates: Schema.Number
})
export type Settings = typeof Settings.Type

/**
 * Short times, since tests wait for them. A frozen process loses its session after two seconds, and its send ends before that. They are far
 * above the few hundred milliseconds for which a busy machine stands still.
 */
export const defaults = {
  kafka: null,
  kafkaPrefix: "",
  faults: "",
  sessionTimeoutMillis: 2_000,
  sendTimeoutMillis: 1_500,
  pollMillis: 200,
  notify: true,
  batchSize: 20,
  witnessFile: "",
  longestWaitMillis: null,
  kafkaProxyPort: null,
  writers: 2,
  pauseMillis: 40,
  aggregates: 40
} satisfies Partial<Settings>

export const variable = "FLEET"

export const settings = Config.schema(Schema.fromJsonString(Settings), variable)

/** The line that a dispatcher prints when its belief has changed: its session's backend, and the lanes that it owns. */
export const Belief = Schema.fromJsonString(
  Schema.Struct({ backendPid: Schema.NullOr(Schema.Number), lanes: Schema.Array(Schema.Number) })
)

/** The settings of the layers below, as the service would derive them from its own variables. */
export const layerOf = (settings: Settings) =>
  Layer.mergeAll(
    Layer.succeed(TestDatabase.TestDatabase, { url: Redacted.make(settings.databaseUrl), name: "given" }),
    Layer.succeed(ControlSettings, {
      sessionTimeoutMillis: settings.sessionTimeoutMillis,
      heartbeatMillis: settings.sessionTimeoutMillis / 5
    }),
    Layer.succeed(WakeupSettings, { crossProcess: settings.notify }),
    Layer.succeed(LaneWorkersSettings, { pollMillis: settings.pollMillis }),
    Layer.succeed(QueueSettings, { batchSize: settings.batchSize, batchBytes: 900_000, archive: true })
  )
