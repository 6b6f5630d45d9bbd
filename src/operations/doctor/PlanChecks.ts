/**
 * The doctor's check of plans: whether Postgres finds work by the indexes that are made for it, in their order.
 *
 * The statements are the service's own, explained in the moment in which they would run. The claim writes, so it is planned and never run. The
 * fetch reads a row or two of each lane, so it is run, in a transaction that can't write.
 *
 * Postgres may well read a small table whole. There sequential scans are forbidden for the look: it then shows what the plan of a large table is.
 */
import { Effect, Schema } from "effect"
import { SqlClient, Statement } from "effect/sql"
import { allLanes } from "../../outbox/Lane.ts"
import { Queue } from "../../outbox/Queue.ts"
import * as Rows from "../../platform/Rows.ts"
import { TaskClaim } from "../../tasks/TaskClaim.ts"
import { type Check, type Finding, notChecked, psql, told } from "./Check.ts"

interface Node {
  readonly "Node Type": string
  readonly "Parent Relationship"?: string
  readonly "Relation Name"?: string
  readonly "Index Name"?: string
  readonly Plans?: ReadonlyArray<Node>
}

const nodesOf = (node: Node): ReadonlyArray<Node> => [node, ...(node.Plans ?? []).flatMap(nodesOf)]

/** The nodes that feed this one: not the CTEs and subqueries that hang at it. */
const feeding = (node: Node): ReadonlyArray<Node> => [
  node,
  ...(node.Plans ?? [])
    .filter((plan) => !/^(?:InitPlan|SubPlan)$/.test(plan["Parent Relationship"] ?? ""))
    .flatMap(feeding)
]

const explained = Schema.Tuple([Schema.Struct({ "QUERY PLAN": Schema.Tuple([Schema.Struct({ Plan: Schema.Any })]) })])
const decodeExplained = Schema.decodeUnknownEffect(explained)

/** Explains each statement that `effect` would run, and runs none of them: each has no rows. */
const plansOf = Effect.fnUntraced(function* <A, E, R>(effect: Effect.Effect<A, E, R>, options: string) {
  const sql = yield* SqlClient.SqlClient
  const plans: Array<Node> = []
  yield* effect.pipe(
    Effect.provideService(Statement.CurrentTransformer, (statement) =>
      Effect.gen(function* () {
        const [text, parameters] = statement.compile()
        if (text.startsWith("EXPLAIN")) return statement
        const rows = yield* sql.unsafe(`EXPLAIN (${options}FORMAT JSON) ${text}`, parameters)
        plans.push((yield* decodeExplained(rows))[0]["QUERY PLAN"][0].Plan as Node)
        return sql`SELECT 1 WHERE false`
      }).pipe(Effect.provideService(Statement.CurrentTransformer, undefined), Effect.orDie)
    )
  )
  return plans
})

/** A table of so many pages, 8 MB, is read by its indexes, or the planner is misled. */
const largePages = 1_024

const pagesRow = Rows.one(Schema.Struct({ pages: Schema.Int }))

/** What is looked for in a plan. */
interface Wanted<R> {
  readonly group: string
  readonly name: string
  readonly table: string
  /** Each has to be used. */
  readonly indexes: ReadonlyArray<string>
  /** In words: `the claim of tasks`. */
  readonly what: string
  readonly statement: Effect.Effect<unknown, unknown, R>
  readonly explain: string
}

const findingsIn = (plans: ReadonlyArray<Node>, { indexes, table, what }: Omit<Wanted<never>, "statement">) => {
  const nodes = plans.flatMap(nodesOf)
  const used = new Set(nodes.flatMap((node) => node["Index Name"] ?? []))
  const analyze = { fix: "Make the index if it is missing, and let Postgres count the rows anew" }
  const findings: Array<Finding> = [
    ...indexes
      .filter((index) => !used.has(index))
      .map((index) => ({
        ...analyze,
        problem: `${what} does not use the index ${index}: it becomes slower with every row of ${table}`,
        command: psql(`ANALYZE ${table}`)
      })),
    ...(nodes.some((node) => node["Node Type"] === "Seq Scan" && node["Relation Name"] === table)
      ? [
          {
            ...analyze,
            problem: `${what} reads the whole table ${table}`,
            command: psql(`ANALYZE ${table}`)
          }
        ]
      : []),
    ...(nodes.some(
      (node) => node["Node Type"].endsWith("Sort") && feeding(node).some((source) => source["Relation Name"] === table)
    )
      ? [
          {
            ...analyze,
            problem: `${what} sorts the rows of ${table}: no index has them in order, so each look reads all that wait`,
            command: psql(`SELECT indexdef FROM pg_indexes WHERE tablename = '${table}'`)
          }
        ]
      : [])
  ]
  return findings
}

const planCheck = <R>(wanted: Wanted<R>): Check<R | SqlClient.SqlClient> => ({
  group: wanted.group,
  name: wanted.name,
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { pages } = yield* pagesRow(
      sql`SELECT (pg_relation_size(to_regclass(${wanted.table})) / 8192)::int4 AS pages`
    )
    const isLarge = pages >= largePages
    const plans = yield* sql.withTransaction(
      Effect.gen(function* () {
        if (!isLarge) {
          yield* sql`SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)`
        }
        return yield* plansOf(wanted.statement, wanted.explain)
      })
    )
    if (plans.length === 0) return notChecked("the statement was not planned")
    return told(
      `${wanted.what} uses ${wanted.indexes.join(" and ")}, in their order${isLarge ? "" : " (the table is small: asked without sequential scans)"}`,
      findingsIn(plans, wanted)
    )
  })
})

/** The plans of the outbox's fetch and of the claim of tasks, of these types. */
export const checks = (
  taskTypes: ReadonlyArray<string>
): ReadonlyArray<Check<Queue | TaskClaim | SqlClient.SqlClient>> => [
  planCheck({
    group: "outbox",
    name: "fetch-plan",
    table: "outbox_events",
    indexes: ["outbox_events_pkey"],
    what: "the dispatcher's fetch",
    statement: Queue.use(({ fetch }) => fetch(allLanes.map((lane) => ({ lane, events: 1, bytes: 1 })))),
    explain: "ANALYZE, TIMING OFF, "
  }),
  planCheck({
    group: "tasks",
    name: "claim-plan",
    table: "outbox_tasks",
    indexes: ["outbox_tasks_due", "outbox_tasks_line"],
    what: "the claim of tasks",
    statement: TaskClaim.use(({ claim }) =>
      claim(
        taskTypes.map((typeName) => ({ typeName, free: 1 })),
        "doctor"
      )
    ),
    explain: ""
  })
]
