/**
 * Sessions of the console, in the database: a person signs in once with a token or a key, and the browser then sends a cookie. A session outlives
 * the process, and all processes know it.
 *
 * A row has HMAC-SHA256 of the session's id under the digest of its credential. The session lives while that credential is configured, and has the
 * credential's present name and scope. A removed or changed credential ends its sessions. Neither a reader of the table nor a writer gets a
 * session. An id is always drawn here, and never taken from a request.
 *
 * Each process looks at the whole table, at most once in five seconds for sessions that it knows. So ten pages cost what one costs.
 * While the database does not answer, the sessions of the last look go on.
 */
import { Context, Effect, Schedule, Schema, Semaphore } from "effect"
import { SqlClient } from "effect/sql"
import { createHmac, randomBytes } from "node:crypto"
import * as DatabaseOutage from "../../platform/DatabaseOutage.ts"
import * as Monotonic from "../../platform/Monotonic.ts"
import * as Rows from "../../platform/Rows.ts"
import type { ApiKey } from "./ApiKeys.ts"

/**
 * Sessions at once; a look reads all of them. Above it one ends of the credential that has the most, the one that was used longest ago. So who
 * signs in again and again ends their own sessions, and nobody else's.
 */
export const maxSessions = 100
/** Over a night without a request a person signs in again. */
export const idleMillis = 12 * 3_600_000
/** A stolen cookie is worth nothing after this, however busy it is kept. */
export const lifeMillis = 7 * 86_400_000
/** Of half a day a minute more or less is nothing, and a busy page writes one row a minute. */
const usedMillisExact = 60_000
/** As hard to guess as AES-256. */
const idBytes = 32
/** What {@link idBytes} give in base64url. Nothing else is looked up. */
const idForm = /^[\w-]{43}$/
/** A page of another port of this host can set cookies of our name, too. More than a few are its work. */
const maxIds = 4
/** An id that is unknown may have begun at another process, so it is looked up. However many are made up, this many looks a second suffice. */
const lookSpacingMillis = 100
/** How soon a stream ends after its session. */
const endedMillis = 1_000

/** The waits that a test makes shorter. */
export const SessionSettings = Context.Reference<{
  /** How long a session that was ended at another process may go on here. */
  readonly cacheMillis: number
  /** A look takes a millisecond. After this time a request is told that the database does not answer. */
  readonly lookTimeoutMillis: number
}>("paid-once/http/SessionSettings", { defaultValue: () => ({ cacheMillis: 5_000, lookTimeoutMillis: 2_000 }) })

/** Who has signed in. */
export type Owner = Pick<ApiKey, "name" | "scope">

/** The database can't be asked, so nobody knows whether this session goes on. */
export class SessionUnknown extends Schema.TaggedError<SessionUnknown>()("SessionUnknown", {
  cause: Schema.Defect()
}) {
  override get message() {
    return "the database does not answer, so nobody can tell who is signed in: nobody is signed out by it"
  }
}

interface Session {
  readonly beganMillis: number
  usedMillis: number
}

/** See the file. */
export interface Sessions {
  /** A new session of a configured credential; its id is for the owner's browser alone. */
  readonly begin: (credential: ApiKey) => Effect.Effect<string>
  /** The owner of the first of these ids that belongs to a session. The session counts as used. */
  readonly ownerOf: (ids: ReadonlyArray<string>) => Effect.Effect<Owner | undefined, SessionUnknown>
  /** Whether one of these ids belongs to a session. It does not count as a use. */
  readonly isAlive: (ids: ReadonlyArray<string>) => Effect.Effect<boolean, SessionUnknown>
  /** Waits until none of these ids belongs to a session any more. It does not count as a use: a page left open signs nobody in for ever. */
  readonly ended: (ids: ReadonlyArray<string>) => Effect.Effect<void>
  /** Ends the sessions with these ids: here at once, at other processes when they look next. */
  readonly end: (ids: ReadonlyArray<string>) => Effect.Effect<void>
}

const rows = Rows.all(Schema.Struct({ digest: Schema.String, beganAgo: Schema.Number, usedAgo: Schema.Number }))

/** The sessions of these credentials. One that is not in the list has none, whatever the table says. */
export const make = Effect.fnUntraced(function* (credentials: ReadonlyArray<ApiKey>) {
  const sql = yield* SqlClient.SqlClient
  const { cacheMillis, lookTimeoutMillis } = yield* SessionSettings
  const turn = yield* Semaphore.make(1)
  /** By their digests, as the last look has found them. */
  let sessions: ReadonlyMap<string, Session> = new Map()
  let lookedAtMillis = -Infinity
  let failure: SessionUnknown | undefined

  const digestOf = (id: string, { digest }: ApiKey) => createHmac("sha256", digest).update(id).digest("hex")
  const candidatesOf = (ids: ReadonlyArray<string>) =>
    ids
      .slice(0, maxIds)
      .filter((id) => idForm.test(id))
      .flatMap((id) => credentials.map((owner) => ({ owner, digest: digestOf(id, owner) })))

  const isOver = sql`(used_at <= clock_now() - ${idleMillis}::float8 * interval '1 millisecond'
    OR began_at <= clock_now() - ${lifeMillis}::float8 * interval '1 millisecond')`
  /** Each credential's newest session before anybody's second, and so on. */
  const fairly = sql`SELECT digest, began_at, used_at, row_number() OVER (PARTITION BY name ORDER BY used_at DESC, digest) AS place
    FROM operator_sessions ORDER BY place, used_at DESC`
  const look = Effect.gen(function* () {
    yield* Effect.sleep(Math.max(0, lookedAtMillis + lookSpacingMillis - (yield* Monotonic.millis)))
    const now = yield* Monotonic.millis
    const found = yield* rows(sql`
      SELECT digest, extract(epoch FROM clock_now() - began_at)::float8 * 1000 AS "beganAgo",
             extract(epoch FROM clock_now() - used_at)::float8 * 1000 AS "usedAgo"
      FROM (${fairly} LIMIT ${maxSessions}) AS s`).pipe(
      Effect.timeoutOrElse({ duration: lookTimeoutMillis, orElse: () => Effect.fail("no answer in time") }),
      Effect.tapError((error) =>
        typeof error === "string" || DatabaseOutage.isOutage(error)
          ? Effect.void
          : Effect.logError("the sessions can't be read", error)
      ),
      Effect.result
    )
    // A look that has failed is one, too: the next request that knows its session does not wait for another.
    lookedAtMillis = now
    failure = found._tag === "Failure" ? new SessionUnknown({ cause: found.failure }) : undefined
    if (found._tag === "Failure") return
    sessions = new Map(
      found.success.map(({ beganAgo, digest, usedAgo }) => [
        digest,
        { beganMillis: now - beganAgo, usedMillis: now - usedAgo }
      ])
    )
  })

  /** The session that one of these ids belongs to, with its owner. */
  const recognised = Effect.fnUntraced(function* (ids: ReadonlyArray<string>) {
    const candidates = candidatesOf(ids)
    if (candidates.length === 0) return undefined
    const known = (now: number) => {
      for (const { digest, owner } of candidates) {
        const session = sessions.get(digest)
        if (session === undefined) continue
        if (now - session.usedMillis < idleMillis && now - session.beganMillis < lifeMillis)
          return { digest, owner, session }
      }
      return undefined
    }
    const now = yield* Monotonic.millis
    const cached = known(now)
    if (cached !== undefined && now - lookedAtMillis < cacheMillis) return cached
    // A look that began after this request came serves it, too.
    yield* turn.withPermit(Effect.suspend(() => (lookedAtMillis >= now ? Effect.void : look)))
    const found = known(yield* Monotonic.millis)
    return found === undefined && failure !== undefined ? yield* failure : found
  })
  const isAlive = (ids: ReadonlyArray<string>) => Effect.map(recognised(ids), (found) => found !== undefined)

  return {
    begin: Effect.fnUntraced(function* (credential) {
      const id = randomBytes(idBytes).toString("base64url")
      yield* sql`
        WITH room AS (
          DELETE FROM operator_sessions WHERE ${isOver}
            OR digest IN (SELECT digest FROM (${fairly} OFFSET ${maxSessions - 1}) AS s))
        INSERT INTO operator_sessions (digest, name, began_at, used_at)
        VALUES (${digestOf(id, credential)}, ${credential.name}, clock_now(), clock_now())`
      return id
    }, Effect.orDie),
    ownerOf: Effect.fnUntraced(function* (ids) {
      const found = yield* recognised(ids)
      if (found === undefined) return undefined
      const now = yield* Monotonic.millis
      if (now - found.session.usedMillis >= usedMillisExact) {
        found.session.usedMillis = now
        // Without it the next look tells the older time again, and another request writes it.
        yield* sql`UPDATE operator_sessions SET used_at = clock_now() WHERE digest = ${found.digest}`.pipe(
          Effect.timeout(lookTimeoutMillis),
          Effect.ignore
        )
      }
      return found.owner
    }),
    isAlive,
    ended: (ids) =>
      isAlive(ids).pipe(
        Effect.orElseSucceed(() => true),
        Effect.repeat({ while: (goesOn) => goesOn, schedule: Schedule.spaced(endedMillis) }),
        Effect.asVoid
      ),
    end: (ids) => {
      const digests = candidatesOf(ids).map(({ digest }) => digest)
      if (digests.length === 0) return Effect.void
      // Not beside a look, which might still find them.
      return turn.withPermit(
        sql`DELETE FROM operator_sessions WHERE digest = ANY (${digests}::text[])`.pipe(
          Effect.andThen(
            Effect.sync(() => {
              sessions = new Map([...sessions].filter(([digest]) => !digests.includes(digest)))
            })
          ),
          Effect.orDie
        )
      )
    }
  } satisfies Sessions
})
