/**
 * `bench append`: the cost of an event for Postgres alone. pgbench runs transactions of one kind for a block, and the kinds take turns:
 *
 * - the aggregate's UPDATE alone;
 * - UPDATE and event in one statement, with the very text that `Outbox.save` sends;
 * - the same without one thing at a time: what is left out, and costs less then, is what that thing costs;
 * - for comparison the usual outbox row of articles, and the smallest possible one.
 *
 * pgbench has no JIT to warm and no garbage to collect, so the ratios are those of Postgres. `PGBENCH` names the program.
 */
import { Effect, Redacted } from "effect"
import { Statement } from "effect/sql"
import { execFile } from "node:child_process"
import { randomUUID } from "node:crypto"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import { beforeInsert, saveText, valuesOf } from "../src/outbox/EventRows.ts"
import { Lane } from "../src/outbox/Lane.ts"
import * as Cpu from "./Cpu.ts"
import { Environment, Side } from "./Environment.ts"
import { interval, median, show, spread, table } from "./Figures.ts"
import { aggregateCount, recordBytes, sampleEvent, topic } from "./Workload.ts"

/** A kind of transaction. `table` gets the rows, and is empty when a block begins. */
interface Kind {
  readonly name: string
  readonly table?: string
  readonly ddl?: string
  readonly statements: ReadonlyArray<string>
}

/** The aggregate's id in a script: one of the 1,000, drawn anew for each transaction. */
const someId = "lpad(:n::text, 36, '0')"
const update = `UPDATE bench_pgbench SET version = version + 1, status = 'changed' WHERE id = ${someId} RETURNING version`

const event = sampleEvent("", 1)

/** What `Outbox.save` sends, with the names of the script's variables in place of its parameters. */
const saving = Effect.map(Side, (sql) => {
  const [before, own] = beforeInsert(sql, sql`${Statement.literal(update)}`, undefined)
  const aggregate = { topic, aggregateType: event.aggregateType, aggregateId: someId }
  const row = { ...event, recordBytes }
  const values = valuesOf(aggregate, Lane.make(17), [row], event)
  const variables = values.flatMap((value, index) => (value === someId ? [] : ["-D", `p${index + 1}=${String(value)}`]))
  const text = (before + saveText(own.length, true)).replaceAll(/\$(\d+)/g, (_, index: string) =>
    values[Number(index) - 1] === someId ? someId : `:p${index}`
  )
  return { text, variables }
})

/** A copy of the queue's table, changed. */
const copy = (name: string, changes: string) =>
  `CREATE TABLE ${name} (LIKE outbox_events INCLUDING ALL); ALTER TABLE ${name} ${changes}`

const plainTypes = [
  ...["topic", "event_type", "aggregate_type", "aggregate_id", "trace_id", "span_id"].map((column) => [column, "text"]),
  ...["lane", "schema_version"].map((column) => [column, "smallint"]),
  ...["aggregate_version", "record_bytes"].map((column) => [column, "integer"])
]
  .map(([column, type]) => `ALTER ${column} TYPE ${type}`)
  .join(", ")

const kindsOf = (save: string): ReadonlyArray<Kind> => {
  const insteadOf = (
    name: string,
    kind: { readonly table: string; readonly changes?: string; readonly text?: string }
  ) => ({
    name,
    table: kind.table,
    ddl: copy(kind.table, kind.changes ?? "SET (fillfactor = 90)"),
    statements: [(kind.text ?? save).replace("outbox_events", kind.table)]
  })
  const usual = `id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_id text NOT NULL, type text NOT NULL, payload jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now()`
  const usualRow = `${someId}, '${event.eventType}', :p11::text::jsonb`
  return [
    { name: "UPDATE alone", statements: [update] },
    { name: "UPDATE and event, one statement", table: "outbox_events", statements: [save] },
    {
      name: "UPDATE and the usual outbox row",
      table: "bench_usual",
      ddl: `CREATE TABLE bench_usual (${usual})`,
      statements: [update, `INSERT INTO bench_usual (aggregate_id, type, payload) VALUES (${usualRow})`]
    },
    {
      name: "UPDATE and the usual row, one statement",
      table: "bench_usual_one",
      ddl: `CREATE TABLE bench_usual_one (${usual})`,
      statements: [
        `WITH written AS (${update}) INSERT INTO bench_usual_one (aggregate_id, type, payload) SELECT ${usualRow} FROM written`
      ]
    },
    {
      name: "UPDATE and the barest row, one statement",
      table: "bench_barest",
      ddl: `CREATE TABLE bench_barest (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, data text NOT NULL)`,
      statements: [`WITH written AS (${update}) INSERT INTO bench_barest (data) SELECT :p11 FROM written RETURNING id`]
    },
    insteadOf("event without domains", { table: "bench_plain", changes: plainTypes }),
    insteadOf("event without its index", { table: "bench_unindexed", changes: "DROP CONSTRAINT bench_unindexed_pkey" }),
    insteadOf("event without index and sequence", {
      table: "bench_unordered",
      changes:
        "DROP CONSTRAINT bench_unordered_pkey, ALTER seq DROP IDENTITY; ALTER TABLE bench_unordered ALTER seq SET DEFAULT 1"
    }),
    insteadOf("event with data as text", {
      table: "bench_text",
      changes: "ALTER data TYPE text",
      text: save.replace("::json", "::text")
    }),
    insteadOf("event with clock_timestamp()", {
      table: "bench_clock",
      text: save.replace("clock_now()", "clock_timestamp()")
    }),
    insteadOf("event with binary trace ids", {
      table: "bench_binary",
      changes: "ALTER trace_id TYPE uuid USING trace_id::uuid, ALTER span_id TYPE bytea USING decode(span_id, 'hex')",
      text: save.replace(":p5::text", ":p5::uuid").replace(":p6::text", "decode(:p6::text, 'hex')")
    })
  ]
}

/** pgbench's report, as far as it is used. */
const reported = (report: string) => {
  const [, transactions] = /transactions actually processed: (\d+)/.exec(report) ?? []
  const [, millis] = /latency average = ([\d.]+) ms/.exec(report) ?? []
  return { transactions: Number(transactions), millis: Number(millis) }
}

/** Runs `rounds` rounds of blocks of `seconds` seconds. */
export const append = Effect.fnUntraced(function* (options: {
  readonly rounds: number
  readonly seconds: number
  readonly clients: number
  /**
   * Transactions' statements that one transaction sends at once. With many of them neither the network nor the disk counts, and what is left
   * is Postgres' own work for a statement, on warm caches.
   */
  readonly pipelined: number
  /** Only the kinds beside which an event is judged, and none of the event without one thing. */
  readonly brief: boolean
}) {
  const sql = yield* Side
  const { databaseUrl } = yield* Environment
  const { text, variables } = yield* saving
  const kinds = kindsOf(text).slice(0, options.brief ? judged : undefined)
  yield* sql`CREATE TABLE bench_pgbench (id text PRIMARY KEY, version int NOT NULL, status text NOT NULL) WITH (fillfactor = 50)`
  yield* sql`INSERT INTO bench_pgbench SELECT lpad(n::text, 36, '0'), 1, 'new' FROM generate_series(1, ${aggregateCount}::int4) AS n`
  yield* Effect.forEach(
    kinds.flatMap(({ ddl }) => ddl?.split("; ") ?? []),
    (ddl) => sql.unsafe(ddl)
  )
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(Path.join(tmpdir(), "bench-append-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true }))
  )
  const pgbench = (kind: Kind, seconds: number) =>
    Effect.callback<ReturnType<typeof reported>>((resume) => {
      const file = Path.join(directory, `${randomUUID()}.sql`)
      const { pipelined } = options
      const statements = [`\\set n random(1, ${aggregateCount})`, ...kind.statements.map((line) => `${line};`)]
      const lines =
        pipelined === 1
          ? ["BEGIN;", ...statements, "COMMIT;"]
          : [
              "BEGIN;",
              "\\startpipeline",
              ...Array.from({ length: pipelined }, () => statements).flat(),
              "\\endpipeline",
              "COMMIT;"
            ]
      writeFileSync(file, lines.join("\n"))
      const flags = [
        "-n",
        "-M",
        "prepared",
        "-c",
        String(options.clients),
        "-j",
        "2",
        "-T",
        String(seconds),
        "-f",
        file
      ]
      const program = process.env["PGBENCH"] ?? "pgbench"
      const url = Redacted.value(databaseUrl)
      execFile(program, [url, ...flags, ...variables], (error, stdout, stderr) =>
        resume(error === null ? Effect.succeed(reported(stdout)) : Effect.die(new Error(`${program}: ${stderr}`)))
      )
    })
  const walPosition = Effect.map(
    sql<{ readonly bytes: number }>`SELECT (pg_current_wal_insert_lsn() - '0/0')::float8 AS bytes`,
    (rows) => rows[0]!.bytes
  )
  const block = Effect.fnUntraced(function* (kind: Kind, seconds: number) {
    if (kind.table !== undefined) yield* sql.unsafe(`TRUNCATE ${kind.table}`)
    yield* sql`VACUUM bench_pgbench`
    yield* sql`CHECKPOINT`
    const wal = yield* walPosition
    const before = yield* Cpu.sample
    const { millis, transactions } = yield* pgbench(kind, seconds)
    const units = transactions * options.pipelined
    const { postgres = Number.NaN } = Cpu.between(before, yield* Cpu.sample)
    return {
      millis: millis / options.pipelined,
      cpuMicros: (postgres / units) * 1e6,
      walBytes: ((yield* walPosition) - wal) / units
    }
  })
  const order = kinds.map((_, index) => index)
  const round = (seconds: number) =>
    Effect.gen(function* () {
      const blocks: Array<Effect.Success<ReturnType<typeof block>>> = []
      for (const index of order) blocks[index] = yield* block(kinds[index]!, seconds)
      // Each kind goes first equally often.
      order.push(order.shift()!)
      return blocks
    })
  const rounds = yield* Effect.forEach(Array.from({ length: options.rounds }), () => round(options.seconds))
  const column = (index: number) => rounds.map((blocks) => blocks[index]!)
  const [{ version }] = (yield* sql<{
    readonly version: string
  }>`SELECT current_setting('server_version') AS version`) as [{ readonly version: string }]
  return {
    workload: { ...options, version },
    kinds: kinds.map(({ name }, index) => ({
      name,
      millis: spread(column(index).map(({ millis }) => millis)),
      ratio: interval(column(index).map(({ millis }, round) => millis / rounds[round]![0]!.millis)),
      cpuRatio: interval(column(index).map(({ cpuMicros }, round) => cpuMicros / rounds[round]![0]!.cpuMicros)),
      cpuMicros: median(column(index).map(({ cpuMicros }) => cpuMicros)),
      walBytes: median(column(index).map(({ walBytes }) => walBytes))
    }))
  }
}, Effect.scoped)

/** The kinds up to the barest row. */
const judged = 5

/** The result for a reader. */
export const print = ({ kinds, workload }: Effect.Success<ReturnType<typeof append>>): string =>
  [
    `Postgres ${workload.version}, ${workload.rounds} rounds, ${workload.clients} clients, ${workload.seconds} s a block${workload.pipelined === 1 ? "" : `, ${workload.pipelined} in one transaction`}: a transaction's mean time, median of the rounds (least … most; of the ratios, where the median is, with 95 % confidence)`,
    "",
    table(
      ["", "ms", "of the UPDATE", "Postgres µs", "of the UPDATE", "WAL bytes"],
      kinds.map(({ cpuMicros, cpuRatio, millis, name, ratio, walBytes }) => [
        name,
        show(millis, 3),
        show(ratio, 2),
        cpuMicros.toFixed(0),
        show(cpuRatio, 2),
        walBytes.toFixed(0)
      ])
    )
  ].join("\n")
