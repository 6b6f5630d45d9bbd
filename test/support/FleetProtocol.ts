/** What a test and the processes of its fleet tell each other: settings one way, in a variable, and lines of JSON the other way. */
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
  /** As the service's FAULTS. */
  faults: Schema.String,
  sessionTimeoutMillis: Schema.Number,
  sendTimeoutMillis: Schema.Number,
  pollMillis: Schema.Number,
  notify: Schema.Boolean,
  batchSize: Schema.Number,
  /** A dispatcher writes down here when it enters and leaves a lane; empty for nowhere. */
  witnessFile: Schema.String,
  /** A dispatcher's waits that are longer never end (ShortWaits.ts); null for a clock as any other. */
  longestWaitMillis: Schema.NullOr(Schema.Number),
  /** Port of 127.0.0.1 through which every connection to Kafka goes; null for straight ones. */
  kafkaProxyPort: Schema.NullOr(Schema.Number),
  /** A writer's work: transactions side by side, the wait between two of them, and aggregates to choose from. */
  writers: Schema.Number,
  pauseMillis: Schema.Number,
  aggregates: Schema.Number
})
export type Settings = typeof Settings.Type

/**
 * Small and quick, for tests that wait for it: a frozen process loses its session after two seconds, and its send ends before that.
 * A machine whose cores are busy stands still for some hundred milliseconds at times.
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

/** A line that a dispatcher prints when what it believes has changed: its session's backend, and the lanes that it owns. */
export const Belief = Schema.fromJsonString(
  Schema.Struct({ backendPid: Schema.NullOr(Schema.Number), lanes: Schema.Array(Schema.Number) })
)

/** The settings of the layers beneath, as the service would make them of its own variables. */
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
