/**
 * Sessions of the console, in the memory of the process: a person signs in once with a token or a key, and the browser then sends a cookie.
 *
 * A session ends with the process, so a restart with other credentials leaves none behind. Only hashes of the ids are kept. An id is
 * always drawn here, and never taken from a request.
 */
import { Effect, Schedule } from "effect"
import { randomBytes } from "node:crypto"
import * as Monotonic from "../../platform/Monotonic.ts"
import * as ApiKeys from "./ApiKeys.ts"

/** Sessions at once. Above it the one that was used longest ago ends: who makes them has a credential. Each request is compared with all. */
export const maxSessions = 100
/** Over a night without a request a person signs in again. */
export const idleMillis = 12 * 3_600_000
/** A stolen cookie is worth nothing after this, however busy it is kept. */
export const lifeMillis = 7 * 86_400_000
/** As hard to guess as AES-256. */
const idBytes = 32
/** A page of another port of this host can set cookies of our name, too. More than a few are its work. */
const maxIds = 4

/** How soon a stream ends after its session. */
const lookMillis = 1_000

/** Who has signed in. */
export type Owner = Pick<ApiKeys.ApiKey, "name" | "scope">

interface Session extends ApiKeys.ApiKey {
  readonly beganMillis: number
  usedMillis: number
}

/** See the file. */
export interface Sessions {
  /** A new session; its id is for the owner's browser alone. */
  readonly begin: (owner: Owner) => Effect.Effect<string>
  /** The owner of the first of these ids that belongs to a session. The session counts as used. */
  readonly ownerOf: (ids: ReadonlyArray<string>) => Effect.Effect<Owner | undefined>
  /** Waits until none of these ids belongs to a session any more. It does not count as a use: a page left open signs nobody in for ever. */
  readonly ended: (ids: ReadonlyArray<string>) => Effect.Effect<void>
  /** Ends the sessions with these ids. */
  readonly end: (ids: ReadonlyArray<string>) => Effect.Effect<void>
}

export const make = (): Sessions => {
  const sessions = new Set<Session>()
  const living = Effect.map(Monotonic.millis, (now) => {
    for (const session of sessions) {
      if (now - session.usedMillis >= idleMillis || now - session.beganMillis >= lifeMillis) sessions.delete(session)
    }
    return now
  })
  const found = (ids: ReadonlyArray<string>) =>
    ids.slice(0, maxIds).flatMap((id) => ApiKeys.ownerOf(sessions, id) ?? [])

  return {
    begin: ({ name, scope }) =>
      Effect.map(living, (now) => {
        if (sessions.size >= maxSessions) {
          sessions.delete([...sessions].reduce((a, b) => (b.usedMillis < a.usedMillis ? b : a)))
        }
        const id = randomBytes(idBytes).toString("base64url")
        sessions.add({ name, scope, digest: ApiKeys.digestOf(id), beganMillis: now, usedMillis: now })
        return id
      }),
    ownerOf: (ids) =>
      Effect.map(living, (now) => {
        const session = found(ids)[0]
        if (session !== undefined) session.usedMillis = now
        return session
      }),
    ended: (ids) =>
      Effect.map(living, () => found(ids).length === 0).pipe(
        Effect.repeat({ until: (isOver) => isOver, schedule: Schedule.spaced(lookMillis) }),
        Effect.asVoid
      ),
    end: (ids) =>
      Effect.sync(() => {
        for (const session of found(ids)) sessions.delete(session)
      })
  }
}
