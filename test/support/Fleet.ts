/** Dispatchers and writers as real processes, for tests that kill them, freeze them and cut their connections. */
import { PgClient } from "@effect/sql-pg"
import { Effect, Option, Redacted, Schedule, Schema, type Scope } from "effect"
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import * as Path from "node:path"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { lockClass } from "../../src/platform/OwnershipLocks.ts"
import { plantedEnv } from "../mutants/planted.ts"
import { eventually } from "./Counters.ts"
import * as FleetProtocol from "./FleetProtocol.ts"
import { TestDatabase } from "./TestDatabase.ts"

export interface Member extends ServiceProcess.ServiceProcess {
  /** The file to which it writes its flights; see {@link intervals}. */
  readonly witnessFile: string
}

/** A directory for the witnesses' files, gone with the scope. */
export const temporaryDirectory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(Path.join(tmpdir(), "paid-once-fleet-"))),
  (directory) => Effect.sync(() => rmSync(directory, { recursive: true, force: true }))
)

/** Halves the start time of a process; a test starts dozens. */
export const compileCache = Path.join(import.meta.dirname, "../../node_modules/.cache/paid-once/compiled")

/** Far above the time that a process takes to end, even where dozens share a core. */
const exitPatience = "60 seconds"

/** The sessions of the database, for the message about a process that hangs. */
const activity = (sql: PgClient.PgClient) =>
  sql`
    SELECT pid, application_name, state, wait_event_type, wait_event, (now() - state_change)::text AS since, left(query, 200) AS query
    FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY pid`.pipe(
    Effect.timeout("5 seconds"),
    Effect.match({
      onFailure: String,
      onSuccess: (rows) => rows.map((row) => JSON.stringify(row)).join("\n")
    })
  )

const stillThere = ({ output, pid }: ServiceProcess.ServiceProcess, sessions: string) =>
  new Error(`waited ${exitPatience} for process ${pid} to end\n${sessions}\n${output().slice(-5_000)}`)

const start = (script: string) =>
  Effect.fnUntraced(function* (
    options: Partial<FleetProtocol.Settings> & { readonly logLevel?: string } = {}
  ): Effect.fn.Return<Member, never, Scope.Scope | TestDatabase | PgClient.PgClient> {
    const { logLevel, ...settings } = options
    const { url } = yield* TestDatabase
    const process = yield* Effect.orDie(
      ServiceProcess.start({
        script: Path.join(import.meta.dirname, script),
        env: {
          NODE_COMPILE_CACHE: compileCache,
          ...plantedEnv(),
          ...(logLevel === undefined ? {} : { LOG_LEVEL: logLevel }),
          [FleetProtocol.variable]: JSON.stringify({
            ...FleetProtocol.defaults,
            databaseUrl: Redacted.value(url),
            ...settings
          } satisfies FleetProtocol.Settings)
        }
      })
    )
    // A frozen process would not get SIGTERM, and at the end of a test nothing has to be stopped cleanly.
    yield* Effect.addFinalizer(() => process.signal("SIGKILL"))
    const sql = yield* PgClient.PgClient
    const exit = Effect.timeoutOrElse(process.exit, {
      duration: exitPatience,
      orElse: () => Effect.flatMap(activity(sql), (sessions) => Effect.die(stillThere(process, sessions)))
    })
    return { ...process, exit, witnessFile: settings.witnessFile ?? "" }
  })

/** A dispatcher process, once it has started. */
export const startDispatcher = start("dispatcherProcess.ts")

/** A consumer process, once it has started. */
export const startConsumer = start("consumerProcess.ts")

/** A process that writes until SIGTERM. */
export const startWriter = start("writerProcess.ts")

const decodeBelief = Schema.decodeUnknownOption(FleetProtocol.Belief)

/** The dispatcher's last belief: its backend, and the lanes that it owns. */
export const beliefOf = (member: Member) =>
  member
    .output()
    .split("\n")
    .flatMap((line) => Option.toArray(decodeBelief(line)))
    .at(-1) ?? { backendPid: null, lanes: [] }

/** The locked lanes, by the backend that holds them: the real owners. */
export const owners = Effect.gen(function* () {
  const sql = yield* PgClient.PgClient
  const rows = yield* sql<{ readonly pid: number; readonly lanes: ReadonlyArray<number> }>`
    SELECT pid, array_agg(objid::int8::int4 ORDER BY objid) AS lanes FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND classid = ${BigInt(lockClass("slot dispatcher") >>> 0)}::int8::oid
    GROUP BY pid`
  return new Map(rows.map(({ lanes, pid }) => [pid, lanes]))
})

/** The reason why these members don't own all lanes evenly right now, or undefined. It compares the members' beliefs with the locks. */
export const unfairness = Effect.fnUntraced(function* (members: ReadonlyArray<Member>) {
  const locked = yield* owners
  const beliefs = members.map(beliefOf)
  const sizes = beliefs.map(({ lanes }) => lanes.length)
  const all = beliefs.flatMap(({ lanes }) => lanes)
  if (new Set(all).size !== 64 || all.length !== 64) return `they believe in ${all.length} lanes, ${sizes.join(", ")}`
  if (Math.max(...sizes) - Math.min(...sizes) > 1) return `their parts are ${sizes.join(", ")}`
  const wrong = beliefs.find(
    ({ backendPid, lanes }) => backendPid === null || locked.get(backendPid)?.join() !== lanes.join()
  )
  if (wrong !== undefined) return `backend ${wrong.backendPid} does not hold what its process believes in`
  return locked.size === members.length ? undefined : `${locked.size} sessions hold lanes, of ${members.length}`
})

/** Enough for a crash, a session timeout and some rebalances on a busy machine. */
const patience = "90 seconds"

/** Waits until these members own all lanes evenly, and returns how many seconds that took. */
export const divided = (members: ReadonlyArray<Member>) =>
  Effect.gen(function* () {
    const started = performance.now()
    let problem: string | undefined
    yield* unfairness(members).pipe(
      Effect.tap((found) => Effect.sync(() => (problem = found))),
      // The database may be down for a while.
      Effect.catchCause(() => Effect.succeed("the database does not answer")),
      Effect.repeat({ until: (found) => found === undefined, schedule: Schedule.spaced("20 millis") }),
      Effect.timeoutOrElse({
        duration: patience,
        orElse: () =>
          Effect.die(
            new Error(
              `waited ${patience} for fair shares of ${members.length}: ${problem}\n${members.map((member) => `${member.pid}: ${member.output().slice(-2_000)}`).join("\n")}`
            )
          )
      })
    )
    return (performance.now() - started) / 1_000
  })

interface Interval {
  readonly lane: number
  readonly from: bigint
  /** Undefined while the work lasts, and if the process died in it. */
  readonly to: bigint | undefined
}

/** The intervals in which the dispatcher worked on a lane, by the machine's monotonic clock. */
export const intervals = ({ witnessFile }: Member): ReadonlyArray<Interval> => {
  if (!existsSync(witnessFile)) return []
  const open = new Map<number, bigint>()
  const closed: Array<Interval> = []
  for (const line of readFileSync(witnessFile, "utf8").split("\n")) {
    const [what, lane = "", at = ""] = line.split(" ")
    if (what === "enter") open.set(Number(lane), BigInt(at))
    const from = open.get(Number(lane))
    if (what === "leave" && from !== undefined) {
      closed.push({ lane: Number(lane), from, to: BigInt(at) })
      open.delete(Number(lane))
    }
  }
  return [...closed, ...[...open].map(([lane, from]) => ({ lane, from, to: undefined }))]
}

/** Waits until the dispatcher is stopped inside the work on a lane, by a fault or a proxy. */
export const inMidBatch = (member: Member) => {
  let before = ""
  let sameLooks = 0
  return eventually(
    "the dispatcher to be in the middle of a batch",
    Effect.sync(() => {
      const open = intervals(member)
        .filter(({ to }) => to === undefined)
        .map(({ from, lane }) => `${lane} ${from}`)
        .join()
      sameLooks = open !== "" && open === before ? sameLooks + 1 : 0
      before = open
      return sameLooks >= 5
    })
  )
}

/** Pairs of members that worked on one lane at the same time, as sentences. The last work of a dead member ends where it began. */
export const overlaps = (members: ReadonlyArray<Member>): ReadonlyArray<string> =>
  Array.from({ length: 64 }, (_, lane) => lane).flatMap((lane) => {
    const works = members
      .flatMap((member) =>
        intervals(member)
          .filter((work) => work.lane === lane)
          .map(({ from, to }) => ({ pid: member.pid, from, to: to ?? from }))
      )
      .toSorted((a, b) => (a.from < b.from ? -1 : 1))
    return works.flatMap((work, index) => {
      const next = works[index + 1]
      return next !== undefined && next.pid !== work.pid && next.from < work.to
        ? [`lane ${lane}: ${work.pid} worked until ${work.to}, ${next.pid} from ${next.from}`]
        : []
    })
  })
