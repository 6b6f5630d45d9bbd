/** The protocol between a test and its worker processes, and their settings. */
import { Schema } from "effect"

export const variable = "WORKER"

export const Settings = Schema.Struct({
  databaseUrl: Schema.String,
  /** As in the service's FAULTS. */
  faults: Schema.String,
  /** The shortest duration of a task; it takes up to three times as long. */
  slowMillis: Schema.Number
})
export type Settings = typeof Settings.Type

/** The line that a worker prints when a task begins. */
export const Began = Schema.Struct({ began: Schema.Number, attempt: Schema.Number })
export type Began = typeof Began.Type

/** A lost task comes back within two seconds, and has enough runs for a test that kills at random. */
export const timing = {
  leaseMillis: 1_500,
  heartbeatMillis: 300,
  retryDelaysMillis: Array.from({ length: 30 }, () => 50),
  pollMillis: 200,
  graceMillis: 1_000
}
