/** Shared parts of the operator's endpoints: pages, filters, the body of a decision, and bulk decisions with a preview. */
import { Effect, Schema, SchemaTransformation } from "effect"
import { HttpApiEndpoint, OpenApi } from "effect/http-api"
import { eventTypes } from "../../domain/Events.ts"
import { shortText } from "../../domain/Text.ts"
import { Preview } from "../../operations/reports/ReportSql.ts"
import { problems } from "../ApiParts.ts"

/** Bounds a page to some hundred kilobytes: the largest item is a task with its last failures. */
export const maxPageSize = 200
/** Two screens. */
export const defaultPageSize = 50
const limitMessage = `must be a whole number between 1 and ${maxPageSize}`

const Limit = Schema.String.check(Schema.isPattern(/^[1-9]\d{0,2}$/, { message: limitMessage })).pipe(
  Schema.decodeTo(
    Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: maxPageSize }, { message: limitMessage })),
    SchemaTransformation.numberFromString
  ),
  Schema.withDecodingDefaultKey(Effect.succeed(String(defaultPageSize)))
)

/** Ten years: retention keeps nothing for as long. */
export const maxSinceSeconds = 315_360_000
const sinceMessage = `must be a whole number of seconds between 1 and ${maxSinceSeconds}`
const Seconds = Schema.Int.check(
  Schema.isBetween({ minimum: 1, maximum: maxSinceSeconds }, { message: sinceMessage })
).annotate({ message: sinceMessage })
export const SecondsText = Schema.String.check(Schema.isPattern(/^[1-9]\d{0,8}$/, { message: sinceMessage })).pipe(
  Schema.decodeTo(Seconds, SchemaTransformation.numberFromString)
)

/** Types and bounds of parameters. The generated document shows them as text. */
export const parameters = {
  untilSeconds: {
    type: "integer",
    minimum: 1,
    maximum: maxSinceSeconds,
    description: "Only from before these last seconds"
  },
  limit: {
    type: "integer",
    minimum: 1,
    maximum: maxPageSize,
    default: defaultPageSize,
    description: "Items a page"
  },
  sinceSeconds: {
    type: "integer",
    minimum: 1,
    maximum: maxSinceSeconds,
    description: "Only of these last seconds"
  }
}

/** Names, ids and causes as a filter has them. No column holds a longer one. */
export const FilterText = shortText(500)

/** One of these, refused with all of them. */
export const oneOf = <const L extends ReadonlyArray<string>>(literals: L) =>
  Schema.Literals(literals).annotate({ message: `must be one of ${literals.join(", ")}` })

/** The query of every list: how many, from where on, and since when. */
export const pageQuery = <Cursor extends Schema.Top>(cursor: Cursor) => ({
  limit: Limit,
  cursor: Schema.optionalKey(cursor),
  sinceSeconds: Schema.optionalKey(SecondsText)
})

/** The query of failures by cause. */
export const causesQuery = { limit: Limit, sinceSeconds: Schema.optionalKey(SecondsText) }

/** The filter of a bulk decision, by age. */
export const since = { sinceSeconds: Schema.optionalKey(Seconds) }

/** The filters of events. */
export const eventFilter = {
  type: Schema.optionalKey(oneOf(eventTypes)),
  aggregateId: Schema.optionalKey(FilterText),
  cause: Schema.optionalKey(FilterText)
}

/** The fields of {@link eventFilter} as the reports call them. */
export const eventFilterOf = <A extends { readonly type?: string }>({ type, ...filter }: A) => ({
  ...filter,
  eventType: type
})

/** A list's answer. */
export const pageOf = <Item extends Schema.Top>(item: Item, identifier: string) =>
  Schema.Struct({ items: Schema.Array(item), nextCursor: Schema.NullOr(Schema.String) }).annotate({
    identifier,
    description: "Newest first. `nextCursor` is null on the last page; else pass it as `cursor`."
  })

/** The failures that wait for the same reason. */
export const causesOf = <Item extends Schema.Top>(item: Item, identifier: string) =>
  Schema.Struct({ items: Schema.Array(item) }).annotate({ identifier, description: "The most frequent cause first." })

/** Why an operator decides so. It is kept in the audit, with the operator's name. */
export const Reason = shortText(500)
  .check(Schema.isPattern(/\S/, { message: "must say why, in a few words" }))
  .annotate({ description: "Why: the audit keeps it", examples: ["the broker's limit is raised"] })

/** The body of a decision. */
export const ReasonBody = Schema.Struct({ reason: Reason }).annotate({ identifier: "Reason" })

/** The body of a decision about many. With `preview` it changes nothing, and needs no reason. */
export const bulkBody = <Fields extends Schema.Struct.Fields>(filter: Fields, identifier: string) =>
  Schema.Struct({
    filter: Schema.Struct(filter),
    reason: Schema.optionalKey(Reason),
    preview: Schema.optionalKey(Schema.Boolean)
  })
    .check(
      Schema.makeFilter(({ preview, reason }: { readonly preview?: boolean; readonly reason?: string }) =>
        preview === true || reason !== undefined ? true : { path: ["reason"], issue: "is required, but in a preview" }
      )
    )
    .annotate({ identifier })

/** What a bulk decision would do. */
export const PreviewAnswer = Schema.Struct({ preview: Schema.Literal(true), ...Preview.fields }).annotate({
  identifier: "BulkPreview",
  description: "How many match (up to 100000), their most frequent causes, and some of their ids. Nothing was changed."
})

/** The problems of what is read, and of a decision. */
export const readProblems = problems(400, 404, 503)
export const decisionProblems = problems(400, 404, 409, 413, 415, 503)

const documented = (summary: string, description?: string) =>
  OpenApi.annotations({ summary, ...(description === undefined ? {} : { description }) })

/** An endpoint that reads. */
export const reading = <
  const Name extends string,
  const Path extends `/${string}`,
  Success extends Schema.Top,
  Params extends Schema.Struct.Fields = never,
  Query extends Schema.Struct.Fields = never
>(
  name: Name,
  path: Path,
  options: {
    readonly params?: Params
    readonly query?: Query
    readonly success: Success
    readonly summary: string
    readonly description?: string
  }
) => {
  const { description, summary, ...rest } = options
  return HttpApiEndpoint.get(name, path, { ...rest, error: readProblems }).annotateMerge(
    documented(summary, description)
  )
}

/** An endpoint that decides. Its body has a reason; repeating it changes nothing. */
export const deciding = <
  const Name extends string,
  const Path extends `/${string}`,
  Payload extends Schema.Top,
  Success extends Schema.Top,
  Params extends Schema.Struct.Fields = never
>(
  name: Name,
  path: Path,
  options: {
    readonly params?: Params
    readonly payload: Payload
    readonly success: Success
    readonly summary: string
    readonly description?: string
  }
) => {
  const { description, summary, ...rest } = options
  return HttpApiEndpoint.post(name, path, { ...rest, error: decisionProblems }).annotateMerge(
    documented(summary, description)
  )
}
