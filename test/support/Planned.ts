/** The plans of the statements that an effect runs. */
import { Effect } from "effect"
import { SqlClient, Statement } from "effect/sql"

interface Node {
  readonly "Node Type": string
  readonly "Relation Name"?: string
  readonly "Index Name"?: string
  readonly "Index Cond"?: string
  /** Only where the statement was run: rows are means over the loops. */
  readonly "Actual Rows"?: number
  readonly "Actual Loops"?: number
  readonly "Rows Removed by Filter"?: number
  readonly Plans?: ReadonlyArray<Node>
}

const nodes = (node: Node): ReadonlyArray<Node> => [node, ...(node.Plans ?? []).flatMap(nodes)]

/** Runs `effect` and explains every statement before it runs, as `explain` says. Returns the nodes of all plans. */
const explained = <A, E, R>(explain: string, effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const found: Array<Node> = []
    yield* effect.pipe(
      Effect.provideService(Statement.CurrentTransformer, (statement) =>
        Effect.gen(function* () {
          const [text, parameters] = statement.compile()
          if (!text.trimStart().startsWith("EXPLAIN")) {
            const [row] = yield* sql.unsafe<{ readonly "QUERY PLAN": ReadonlyArray<{ readonly Plan: Node }> }>(
              `EXPLAIN (${explain}) ${text}`,
              parameters
            )
            found.push(...nodes(row!["QUERY PLAN"][0]!.Plan))
          }
          return statement
        }).pipe(Effect.orDie)
      )
    )
    return found
  })

/** Runs `effect`. Returns the nodes of the plans of its statements. */
export const nodesOf = <A, E, R>(effect: Effect.Effect<A, E, R>) => explained("FORMAT JSON", effect)

/** Runs `effect`. Returns the indexes that the plans of its statements use, and the tables that they scan. */
export const planned = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(explained("FORMAT JSON", effect), (found) => ({
    indexes: [...new Set(found.flatMap((node) => node["Index Name"] ?? []))],
    scans: found.filter((node) => node["Node Type"] === "Seq Scan").flatMap((node) => node["Relation Name"] ?? [])
  }))

/** Runs `effect`, which only reads: its statements run twice. Returns how many rows of tables they visit. */
export const rowsVisited = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(explained("ANALYZE, TIMING OFF, FORMAT JSON", effect), (found) =>
    found
      .filter((node) => node["Relation Name"] !== undefined)
      .reduce(
        (total, node) =>
          total +
          (node["Actual Rows"] ?? 0) * (node["Actual Loops"] ?? 0) +
          (node["Rows Removed by Filter"] ?? 0) * (node["Actual Loops"] ?? 0),
        0
      )
  )
