/**
 * Lanes and their owners, as real processes on a real Postgres. A process that dies, freezes or is cut off loses its lanes, and no lane has
 * two owners.
 */
import { PgClient } from "@effect/sql-pg"
import { it } from "@effect/vitest"
import { Effect, Exit, Layer, Redacted, Scope } from "effect"
import * as Path from "node:path"
import * as EmbeddedPostgres from "../../../src/postgres/embedded/EmbeddedPostgres.ts"
import * as Migrations from "../../../src/postgres/Migrations.ts"
import * as Counters from "../../support/Counters.ts"
import * as Fleet from "../../support/Fleet.ts"
import * as Ledger from "../../support/Ledger.ts"
import * as TcpProxy from "../../support/TcpProxy.ts"
import { forPlainSockets } from "../../support/Postgres.ts"
import { TestDatabase } from "../../support/TestDatabase.ts"
import * as TestProcess from "../../support/TestProcess.ts"

const database = Layer.effectDiscard(Ledger.makeTables).pipe(
  Layer.provideMerge(TestDatabase.layerPool),
  Layer.provideMerge(TestProcess.quiet)
)

const settle = Effect.fnUntraced(function* (what: string, members: ReadonlyArray<Fleet.Member>) {
  const seconds = yield* Fleet.divided(members)
  console.info(`${what}: ${members.length} share the lanes evenly after ${seconds.toFixed(1)} s`)
})

/** Ends the session that owns the member's lanes. */
const terminateControl = Effect.fnUntraced(function* (member: Fleet.Member) {
  const sql = yield* PgClient.PgClient
  yield* sql`SELECT pg_terminate_backend(${Fleet.beliefOf(member).backendPid})`
})

it.live(
  "one to eight dispatchers share the lanes evenly, each lane owned once, whoever comes, goes, dies, freezes or is cut off",
  () =>
    Effect.gen(function* () {
      const { proxy, url } = yield* TcpProxy.makePostgres((yield* TestDatabase).url)
      const behindProxy = yield* Fleet.startDispatcher({ databaseUrl: Redacted.value(url) })
      yield* settle("one alone", [behindProxy])
      const second = yield* Fleet.startDispatcher()
      yield* settle("a second one comes", [behindProxy, second])
      const others = yield* Effect.replicateEffect(Fleet.startDispatcher(), 6, { concurrency: "unbounded" })
      let members = [behindProxy, second, ...others]
      yield* settle("six more at once", members)

      const [killed, frozen, stopped] = others
      yield* killed!.signal("SIGKILL")
      members = members.filter((member) => member !== killed)
      yield* settle("kill -9 of one", members)

      yield* frozen!.signal("SIGSTOP")
      const awake = members.filter((member) => member !== frozen)
      yield* settle("SIGSTOP of one", awake)
      yield* frozen!.signal("SIGCONT")
      yield* settle("SIGCONT", members)

      const before = Fleet.beliefOf(second).backendPid
      yield* terminateControl(second)
      yield* Effect.repeat(
        Effect.sync(() => Fleet.beliefOf(second).backendPid),
        {
          until: (pid) => pid !== null && pid !== before
        }
      ).pipe(Effect.timeout("30 seconds"))
      yield* settle("pg_terminate_backend of a control connection", members)

      yield* proxy.blackHole()
      yield* settle(
        "the network swallows everything of one",
        members.filter((member) => member !== behindProxy)
      )
      yield* proxy.pass
      yield* settle("the network is back", members)

      yield* stopped!.signal("SIGTERM")
      members = members.filter((member) => member !== stopped)
      yield* settle("SIGTERM of one", members)
      for (const member of members.slice(2)) yield* member.signal("SIGKILL")
      members = members.slice(0, 2)
      yield* settle("kill -9 of all but two", members)
      yield* members[0]!.signal("SIGKILL")
      yield* settle("kill -9 of one of two", members.slice(1))
    }).pipe(Effect.scoped, Effect.provide(database)),
  600_000
)

it.live("when one of two dispatchers is killed the other one finds and takes all lanes within a second", () =>
  Effect.gen(function* () {
    // A killed process wakes no other. The survivor's waits above a second never end, so no slow poll helps.
    const survivor = yield* Fleet.startDispatcher({ longestWaitMillis: 1_000 })
    const killed = yield* Fleet.startDispatcher()
    yield* settle("two", [survivor, killed])
    yield* killed.signal("SIGKILL")
    yield* settle("kill -9 of the other", [survivor])
  }).pipe(Effect.scoped, Effect.provide(database))
)

it.live("a frozen dispatcher loses its lanes although it reads none of the notifications that are sent to it", () =>
  Effect.gen(function* () {
    const awake = yield* Fleet.startDispatcher()
    const frozen = yield* Fleet.startDispatcher()
    yield* settle("two", [awake, frozen])
    yield* frozen.signal("SIGSTOP")
    const sql = yield* PgClient.PgClient
    // More than the buffers of a socket hold, so Postgres waits for the frozen reader.
    const busy = "x".repeat(7_000)
    yield* Effect.repeat(sql`SELECT pg_notify('paid_once', ${busy})`, { times: 3_000 })
    yield* settle("SIGSTOP of the other, which is sent 20 MB", [awake])
    yield* frozen.signal("SIGCONT")
    yield* settle("SIGCONT", [awake, frozen])
  }).pipe(Effect.scoped, Effect.provide(database))
)

it.live("Postgres restarts, and the dispatchers share the lanes again", () =>
  Effect.gen(function* () {
    const directory = yield* TestDatabase.dataDirectory
    // A restarted Postgres has the same socket.
    const boot = Effect.gen(function* () {
      const scope = yield* Scope.fork(yield* Effect.scope)
      const { ownerUrl } = yield* EmbeddedPostgres.acquire({
        dataDirectory: Path.join(directory, "postgres"),
        settings: { fsync: "off" }
      }).pipe(Scope.provide(scope))
      return { url: Redacted.make(forPlainSockets(ownerUrl).href), stop: Scope.close(scope, Exit.void) }
    })
    const { stop, url } = yield* boot
    yield* Migrations.apply([Migrations.mechanism]).pipe(
      Effect.provide(PgClient.layer({ url, maxConnections: 1 }), { local: true })
    )
    const own = { databaseUrl: Redacted.value(url) }
    const members = yield* Effect.replicateEffect(Fleet.startDispatcher(own), 3, { concurrency: "unbounded" })
    const shared = (what: string) =>
      settle(what, members).pipe(Effect.provide(PgClient.layer({ url, maxConnections: 1 }), { local: true }))
    yield* shared("on a Postgres of their own")
    const before = members.map((member) => Fleet.beliefOf(member).backendPid)
    yield* stop
    yield* boot
    yield* Counters.eventually(
      "other sessions",
      Effect.sync(() => members.every((member, index) => Fleet.beliefOf(member).backendPid !== before[index]))
    )
    yield* shared("Postgres restarted")
  }).pipe(Effect.scoped, Effect.provide(database))
)
