/**
 * An actor: one process of the service as the scheduler sees it. It runs one job at a time and stops at every gate until the scheduler
 * resumes it. A gate is in front of each statement of its own connections, each fault point, each call to the broker or the gateway, and
 * each wait.
 */
import { PgClient } from "@effect/sql-pg"
import { Clock, Context, Duration, Effect, Exit, Random, References } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, type SqlConnection, SqlError } from "effect/sql"
import { type FaultPoint, Faults } from "../../src/platform/Faults.ts"
import { laneOf } from "../../src/outbox/Lane.ts"
import { Ids } from "../../src/platform/Ids.ts"
import { RandomUuid } from "../../src/platform/RandomUuid.ts"
import { version7 } from "./mistakes/version7.ts"
import * as TransactionControl from "../../src/platform/TransactionControl.ts"
import type { LabConnection, LabDatabase } from "./LabDatabase.ts"

/** The work of an actor from one idle state to the next. */
export interface Job {
  readonly title: string
  readonly effect: Effect.Effect<unknown, unknown>
  /** The lanes that a dispatcher drains in this job. */
  readonly lanes?: ReadonlyArray<number>
  /** Called when the job ends; never called if its actor crashes. */
  readonly ended?: (exit: Exit.Exit<unknown, unknown>) => void
}

/** Time outside of the database, in milliseconds since 1970. All actors share one clock: the lab does not look for clock skew. */
export interface LabTime {
  millis: number
}

/**
 * A fault that is set for an actor, and its place. `gate`: at the gate with that number. `effects`: at the first gate after that many
 * effects, since a crash does most harm between two things that others can see. `late commit`: before the commit of its next transaction
 * that appended an event. `afterWrite`: in its next transaction, that many gates after the first write, which gave the transaction its id.
 */
export type Trap =
  /** Another event of the case happens there; the actor does not notice. */
  | {
      readonly kind: "happens"
      readonly at: { readonly gate: number }
      readonly happens: (actor: Actor) => Effect.Effect<void>
    }
  | {
      readonly kind: "crash" | "freeze"
      readonly at:
        | { readonly gate: number }
        | { readonly effects: number }
        | { readonly afterWrite: number }
        | "late commit"
    }
  /** Its session ends before or after the statement that would be that effect. If after, the commit's answer is lost. */
  | { readonly kind: "cut"; readonly effects: number; readonly behind: boolean }
  /** Its transaction gets a serialization failure, at its first statement from that gate on. */
  | { readonly kind: "conflict"; readonly gate: number }

export class Actor {
  readonly name: string
  /** `gate`: waits before `label`. `blocked`: its statement waits for a lock. `dead`: crashed, and never resumed. */
  state: "idle" | "gate" | "running" | "blocked" | "dead" = "idle"
  frozen = false
  label = ""
  job: Job | undefined
  trap: Trap | undefined
  gatesPassed = 0
  /** Effects that others can see: commits, sends, charges, offsets. */
  effects = 0
  /** Lanes that it has fetched since they were last woken. */
  readonly lookedAt = new Set<number>()
  /** The connections it has borrowed. */
  readonly connections = new Set<LabConnection>()
  /** The backend pid of the session that runs its statement. */
  statementPid: number | undefined
  /** Its statement waits for a lock with a short lock timeout. */
  givesUp = false
  /** Adds a line about this actor to the story. */
  tell: (what: string) => void = () => undefined
  /** Its last step changed, or may have changed, committed rows. */
  changed = false
  private resume: (() => void) | undefined
  private onArrival: (() => void) | undefined

  constructor(name: string) {
    this.name = name
  }

  /** Waits until the scheduler resumes the actor. A crashed actor waits here for ever, and nothing refers to it any more. */
  readonly gate = (label: string): Effect.Effect<void> =>
    Effect.callback<void>((resume) => {
      if (isEffectOutside(this.label)) this.effects += 1
      this.label = label
      this.gatesPassed += 1
      this.resume = () => resume(Effect.void)
      this.state = "gate"
      this.arrived()
      // An interrupted actor continues without the scheduler: to its next gate, or to the end of its job.
      return Effect.sync(() => {
        if (this.state === "gate") this.state = "running"
      })
    })

  get isRunnable(): boolean {
    return this.state === "gate" && !this.frozen
  }

  get inTransaction(): boolean {
    return [...this.connections].some((connection) => connection.inTransaction)
  }

  begin(job: Job, context: Context.Context<never>): void {
    this.job = job
    this.state = "running"
    const fiber = Effect.runForkWith(Context.add(context, CurrentActor, this))(job.effect)
    fiber.addObserver((exit) => {
      if (this.state === "dead") return
      this.state = "idle"
      this.job = undefined
      job.ended?.(exit)
      this.arrived()
    })
  }

  /** Resumes it from its gate. */
  goOn(): void {
    const resume = this.resume
    this.resume = undefined
    this.state = "running"
    resume?.()
  }

  /** True once the actor has reached a gate or ended its job; false after `millis`. */
  arrival(millis: number): Effect.Effect<boolean> {
    return Effect.callback<boolean>((resume) => {
      if (this.state !== "running" && this.state !== "blocked") return resume(Effect.succeed(true))
      const timer = setTimeout(() => {
        this.onArrival = undefined
        resume(Effect.succeed(false))
      }, millis)
      this.onArrival = () => {
        clearTimeout(timer)
        resume(Effect.succeed(true))
      }
    })
  }

  private arrived(): void {
    const onArrival = this.onArrival
    this.onArrival = undefined
    onArrival?.()
  }
}

/** The step behind this gate is visible outside the database. Commits are counted where they are made. */
const isEffectOutside = (label: string) => label.startsWith("publish ") || effectsOutside.has(label)

const effectsOutside = new Set(["charge at the gateway", "refund at the gateway", "commit the offset", "do the work"])

/** The actor whose job the fiber runs. Two workers of one process share its services, and each stops at its own gates. */
export const CurrentActor = Context.Reference<Actor | undefined>("test/lab/CurrentActor", {
  defaultValue: () => undefined
})

const withActor = <A, E, R>(use: (actor: Actor) => Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.flatMap(CurrentActor, (actor) =>
    actor === undefined ? Effect.die(new Error("no actor runs this")) : use(actor)
  )

/** A gate of the actor that runs this fiber. */
export const gate = (label: string): Effect.Effect<void> => withActor((actor) => actor.gate(label))

/** A real serialization failure from Postgres, so that the transaction is left as a real one leaves it. */
const loseConflict = `DO $$ BEGIN RAISE EXCEPTION 'could not serialize access' USING ERRCODE = 'serialization_failure'; END $$`

/** A connection whose statements are gates. */
const gated = (actor: Actor, own: LabConnection, terminate: Effect.Effect<void>): SqlConnection.Connection => {
  const through = <A>(sql: string, run: Effect.Effect<A, SqlError.SqlError>): Effect.Effect<A, SqlError.SqlError> => {
    const kind = describe(sql)
    const isWrite = /insert|update|delete|^make |^drop /.test(kind)
    /** Ends the session for good. The driver's own error would depend on timing, so the lab raises the same error each time. */
    const cut = Effect.suspend(() => {
      own.broken = true
      return Effect.andThen(terminate, Effect.fail(connectionLost))
    })
    const struck = Effect.suspend((): Effect.Effect<A, SqlError.SqlError> => {
      const { trap } = actor
      const commits = kind === "COMMIT" || (isWrite && !own.inTransaction)
      if (own.broken) return Effect.fail(connectionLost)
      if (trap?.kind === "cut" && commits && actor.effects + 1 >= trap.effects) {
        actor.trap = undefined
        actor.tell(
          `loses its session ${trap.behind ? "behind" : "in front of"} the ${kind === "COMMIT" ? kind : "write"}`
        )
        return trap.behind ? Effect.andThen(run, cut) : cut
      }
      if (
        trap?.kind === "conflict" &&
        own.inTransaction &&
        !commits &&
        kind !== "ROLLBACK" &&
        actor.gatesPassed >= trap.gate
      ) {
        actor.trap = undefined
        actor.tell("loses against another transaction")
        return Effect.andThen(own.pg.query(loseConflict), run)
      }
      return run
    })
    return actor.gate(kind).pipe(
      Effect.andThen(
        Effect.sync(() => {
          actor.statementPid = own.pg.processId
          if (sql.includes("'lock_timeout'")) own.givesUp = true
          actor.givesUp = own.givesUp || kind === makesDay
          if (kind.includes("outbox_events") && kind.includes("insert")) own.appended = true
          if (own.wrote) own.sinceWrite += 1
          if (kind.startsWith("drop ")) own.dropped = own.inTransaction
          if (isWrite) own.wrote = true
        })
      ),
      Effect.andThen(struck),
      Effect.onExit((exit) =>
        Effect.sync(() => {
          actor.statementPid = undefined
          if (kind === "BEGIN" && Exit.isSuccess(exit)) own.inTransaction = true
          if (kind === "COMMIT" || (!own.inTransaction && isWrite)) {
            actor.changed = true
            actor.effects += 1
          }
          if (kind === "COMMIT" || kind === "ROLLBACK") {
            own.inTransaction = false
            own.appended = false
            own.wrote = false
            own.sinceWrite = 0
            own.givesUp = false
            own.dropped = false
          }
        })
      )
    )
  }
  const rows = (sql: string, params: ReadonlyArray<unknown>, prepare: boolean) =>
    through(
      sql,
      Effect.map(own.pg.query(sql, params, prepare), (result) => result.rows)
    )
  return {
    execute: (sql, params) => rows(sql, params, true),
    executeUnprepared: (sql, params) => rows(sql, params, false),
    executeRaw: (sql, params) => through(sql, own.pg.query(sql, params)),
    executeValues: (sql, params) => through(sql, own.pg.queryValues(sql, params)),
    executeValuesUnprepared: (sql, params) => through(sql, own.pg.queryValues(sql, params, false)),
    executeStream: () => {
      throw new Error("the lab has no streams: nothing that it runs uses them")
    }
  }
}

const connectionLost = new SqlError.SqlError({
  reason: new SqlError.ConnectionError({ cause: new Error("the session has ended"), message: "the session has ended" })
})

/** The statement that adds a day's partition to a table; its SQL function sets its own lock timeout. */
const makesDay = "make a day"

/** A statement in a few words: what it does to which tables. */
export const describe = (sql: string): string => {
  const text = sql.replaceAll(/\s+/g, " ").trim()
  // The end of a savepoint commits nothing.
  if (/^(SAVEPOINT|RELEASE|ROLLBACK TO)\b/.test(text)) return text
  if (/^(BEGIN|COMMIT|ROLLBACK)\b/.test(text) && text.length < 60) return /^\w+/.exec(text)![0]
  const ofDay = /^(DROP|LOCK) TABLE (?:IF EXISTS )?(\w+)/.exec(text)
  if (ofDay !== null) return `${ofDay[1]!.toLowerCase()} ${ofDay[2]!}`
  if (text.includes("make_daily_partition(")) return makesDay
  if (text.includes("drop_daily_partition(")) return "drop a day"
  const writes = [...text.matchAll(/\b(INSERT INTO|UPDATE|DELETE FROM) ([a-z_]+)/g)]
    .map((match) => `${match[1]!.split(" ")[0]!.toLowerCase()} ${match[2]!}`)
    .filter((write) => !write.startsWith("update of") && !write.endsWith(" set"))
  if (text.startsWith("UPDATE inbox_holds AS h SET")) return "update inbox_holds (sweep)"
  if (writes.length === 1 && writes[0] === "update outbox_tasks") return `update outbox_tasks (${purposeOf(text)})`
  if (writes.length > 0) return [...new Set(writes)].join(" + ")
  const from = /\bFROM ([a-z_]+)/.exec(text.replaceAll(/FROM unnest/g, ""))
  const lock = text.includes("SKIP LOCKED")
    ? " for update skip locked"
    : text.includes("FOR UPDATE")
      ? " for update"
      : ""
  return from === null ? "select" : `select ${from[1]!}${lock}`
}

/** The purpose of an UPDATE of `outbox_tasks`, since each state change updates that one table. */
const purposeOf = (text: string): string =>
  text.includes("attempts = attempts + 1")
    ? "claim"
    : text.includes("AS ended(")
      ? "end"
      : text.includes("AS run(")
        ? "renew"
        : text.includes("expired AS")
          ? "take back"
          : text.includes("SET state = 'completed'")
            ? "settle"
            : "other"

/** A process's pool: sessions of the lab, lent on demand. Every statement is a gate. */
const pool = (database: LabDatabase["Service"]) =>
  Effect.gen(function* () {
    const acquirer = withActor((actor) =>
      Effect.acquireRelease(
        Effect.map(database.lend, (own) => {
          actor.connections.add(own)
          return own
        }),
        (own) =>
          Effect.sync(() => {
            actor.connections.delete(own)
            database.giveBack(own)
          })
      ).pipe(Effect.map((own) => gated(actor, own, database.terminate([own]))))
    )
    const client = yield* Effect.provide(
      SqlClient.make({
        acquirer,
        transactionAcquirer: acquirer,
        compiler: PgClient.makeCompiler(undefined, false),
        driver: "pg",
        spanAttributes: []
      }),
      Reactivity.layer
    )
    const { config, json, listen, notify, [PgClient.TypeId]: typeId } = database.client
    const own = Object.assign(client, { config, json, listen, notify, [PgClient.TypeId]: typeId }) as PgClient.PgClient
    return TransactionControl.install(own)
  })

/** mulberry32. 32 bits of state are enough for a case, and the numbers are the same on every machine. */
export const randomOf = (seed: number) => {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** The lanes of all ids. The orders of a case share lanes, as those of a busy system do. Two of the lanes lie in one partition. */
export const usedLanes = [0, 1, 2] as const

/** A version 4 UUID whose version 7 twin (version7.ts) has that time and falls into one of `usedLanes`. One draw in 21 does. */
const uuidInFewLanes = (millis: number, random: () => number): string => {
  const time = millis.toString(16).padStart(12, "0")
  const start = `${time.slice(0, 8)}-${time.slice(8)}-`
  for (;;) {
    const hex = Array.from({ length: 18 }, () => Math.floor(random() * 16).toString(16)).join("")
    const end = `${hex.slice(0, 3)}-8${hex.slice(3, 6)}-${hex.slice(6)}`
    if (laneOf(`${start}7${end}`) < usedLanes.length) return `${start}4${end}`
  }
}

/** Waits of at least this length are time limits; the service's pauses are shorter here. */
const shortestLimitMillis = 5_000

/** The surroundings of a process's code: its pool, and the lab's faults, ids, jitter, time and silent logger. */
export const surroundings = (database: LabDatabase["Service"], time: LabTime, random: () => number) =>
  Effect.gen(function* () {
    const sql = yield* pool(database)
    const at = (point: FaultPoint) => gate(point)
    return Context.make(PgClient.PgClient, sql).pipe(
      Context.add(SqlClient.SqlClient, sql as SqlClient.SqlClient),
      Context.add(Faults, { at, around: (point, operation) => Effect.andThen(at(point), operation) }),
      Context.add(RandomUuid, () => uuidInFewLanes(time.millis, random)),
      Context.add(Ids, {
        next: () => version7(uuidInFewLanes(time.millis, random)),
        sampleBy: Effect.asVoid,
        sample: Effect.void
      }),
      Context.add(Random.Random, {
        nextDoubleUnsafe: random,
        nextIntUnsafe: () => Math.floor(random() * Number.MAX_SAFE_INTEGER)
      }),
      Context.add(Clock.Clock, {
        currentTimeMillisUnsafe: () => time.millis,
        currentTimeMillis: Effect.sync(() => time.millis),
        currentTimeNanosUnsafe: () => BigInt(time.millis) * 1_000_000n,
        currentTimeNanos: Effect.sync(() => BigInt(time.millis) * 1_000_000n),
        monotonicTimeNanosUnsafe: () => BigInt(time.millis) * 1_000_000n,
        monotonicTimeNanos: Effect.sync(() => BigInt(time.millis) * 1_000_000n),
        // A wait is over at once, and is a gate where other actors may run. A time limit, which runs beside the effect that it limits,
        // never ends.
        sleep: (duration) =>
          Duration.toMillis(duration) >= shortestLimitMillis
            ? Effect.never
            : Effect.andThen(
                gate("wait"),
                Effect.sync(() => {
                  time.millis += Math.ceil(Duration.toMillis(duration))
                })
              )
      }),
      Context.add(References.MinimumLogLevel, "None"),
      // Spans would draw their ids from another source.
      Context.add(References.TracerEnabled, false)
    )
  })
