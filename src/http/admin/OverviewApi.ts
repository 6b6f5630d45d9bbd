/** The group `live` of the admin API: the overview, the lanes, and the stream that keeps a page up to date. */
import { Schema, SchemaTransformation } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { ConsumerStatus, Sample, StatusView } from "../../application/views/StatusView.ts"
import { LaneView } from "../../operations/reports/LaneReport.ts"
import { problems } from "../ApiParts.ts"
import { HealthReport } from "../Health.ts"

/** Something that waits, and not for a person. */
export const Wait = Schema.Struct({
  /** In words: `partition 5 of orders can't be reached`. */
  what: Schema.String,
  sinceSeconds: Schema.NullOr(Schema.Number),
  /** In words: `the next try in 3 s`. */
  frees: Schema.String,
  /** A page of docs/runbooks, by its name, which the console shows at `/console/runbooks/BrokerUnavailable`. */
  runbook: Schema.NullOr(Schema.String)
}).annotate({ identifier: "Wait" })
export type Wait = typeof Wait.Type

/** Whether money is moving. */
export const Verdict = Schema.Struct({
  status: HealthReport.fields.status,
  sentence: Schema.String,
  waits: Schema.Array(Wait)
}).annotate({ identifier: "Verdict" })
export type Verdict = typeof Verdict.Type

/** A partition that a consumer reads. */
export const ConsumedPartition = Schema.Struct({
  topic: Schema.String,
  partition: Schema.Int,
  /** The process that reads it; null while nobody does, or where the broker does not tell. */
  owner: Schema.NullOr(Schema.String),
  /** Records that the consumer has yet to read; null where that is not known. */
  lag: Schema.NullOr(Schema.Int)
})

export const OverviewConsumer = Schema.Struct({
  ...ConsumerStatus.fields,
  /** Of all partitions. */
  lag: Schema.NullOr(Schema.Int),
  /** Why `lag` is null. */
  lagUnknown: Schema.NullOr(Schema.Literals(["not read yet", "the broker does not tell"])),
  partitions: Schema.Array(ConsumedPartition)
})

/** What a person on call asks first. */
export const Overview = Schema.Struct({
  /** By the database's clock. */
  at: Schema.String,
  verdict: Verdict,
  ...StatusView.fields,
  lanes: Schema.Array(LaneView),
  consumers: Schema.Array(OverviewConsumer),
  broker: Schema.Struct({
    /** `kafka`, `embedded`. */
    kind: Schema.String,
    state: Schema.Literals(["ready", "unreachable"]),
    /** Why it is not ready, in words. */
    detail: Schema.NullOr(Schema.String)
  }),
  database: Schema.Struct({
    state: Schema.Literals(["ready", "unreachable"]),
    /** Connections of this process for requests. */
    open: Schema.Int,
    max: Schema.Int
  }),
  /** As in /health/ready. */
  health: HealthReport.fields.parts,
  /** The last sample; null where nobody has looked at the stream lately. */
  rates: Schema.NullOr(Sample)
}).annotate({ identifier: "Overview" })
export type Overview = typeof Overview.Type

/**
 * The event `trouble`: figures can't be read at the moment. A page keeps the last ones, and shows that they are old.
 */
export const Trouble = Schema.Struct({ verdict: Verdict, health: HealthReport.fields.parts }).annotate({
  identifier: "Trouble"
})
export type Trouble = typeof Trouble.Type

const sampleIdMessage = "must be the id of a sample, a whole number"
const SampleId = Schema.String.check(Schema.isPattern(/^\d{1,15}$/, { message: sampleIdMessage })).pipe(
  Schema.decodeTo(Schema.Int, SchemaTransformation.numberFromString)
)

export const LiveApi = HttpApiGroup.make("live")
  .add(
    HttpApiEndpoint.get("overview", "/admin/overview", {
      success: Overview,
      error: problems(401, 403, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "What a person on call asks first",
        description: "Is money moving, what waits and since when, what frees it, and what needs a decision."
      })
    ),
    HttpApiEndpoint.get("lanes", "/admin/lanes", {
      success: Schema.Struct({ items: Schema.Array(LaneView) }).annotate({ identifier: "Lanes" }),
      error: problems(401, 403, 503)
    }).annotateMerge(
      OpenApi.annotations({ summary: "The lanes", description: "Which process owns each, and what waits in it." })
    ),
    HttpApiEndpoint.get("stream", "/admin/stream", {
      query: { after: Schema.optionalKey(SampleId) },
      success: HttpApiSchema.StreamUint8Array({ contentType: "text/event-stream" }),
      error: problems(400, 401, 403, 429, 503)
    }).annotateMerge(
      OpenApi.annotations({
        summary: "The overview, as it changes",
        description:
          "Server-sent events. `sample` (a Sample, with its id) and `overview` (an Overview) every other second; `trouble` (verdict and " +
          "health) while the figures can't be read; `bye` before the server ends the stream. With `Last-Event-ID` or `after` the samples " +
          "after that one come first, without either those of the last quarter of an hour."
      })
    )
  )
  .annotateMerge(OpenApi.annotations({ title: "Live", description: "The console's overview. For operators." }))
