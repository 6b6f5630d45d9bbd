/** Questions about topics and groups: each with an admin client of its own, or with one that is kept. */
import { Effect, RcRef, type Scope } from "effect"
import type { Admin } from "kafkajs"
import * as Monotonic from "../../platform/Monotonic.ts"
import { TopicUnavailable } from "../Broker.ts"
import { type Clients, close } from "./KafkaClient.ts"
import * as KafkaErrors from "./KafkaErrors.ts"

/** For a whole question: describing a topic takes milliseconds, creating one some hundred. A longer wait means a broker that hangs. */
export const adminTimeoutMillis = 10_000

/** For one request of a question. */
export const adminRequestTimeoutMillis = 3_000

/** No request is in flight when an admin client is closed. */
const closeGraceMillis = 1_000

/** One request of kafkajs. */
export const ask = <A>(question: () => Promise<A>) => Effect.tryPromise({ try: question, catch: (cause) => cause })

/** Whether no broker has responded. A refusal is a response. */
export const isNoAnswer = (error: unknown) =>
  !(error instanceof TopicUnavailable) && KafkaErrors.protocolErrorOf(error) === undefined

/** An admin client that is connected, until the scope closes. It asks `server` alone where that is given. */
const connected = (clients: Clients, server?: string): Effect.Effect<Admin, unknown, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const client = clients.open({
        requestTimeoutMillis: adminRequestTimeoutMillis,
        retries: 0,
        acceptsPartialMetadata: true,
        ...(server === undefined ? {} : { server })
      })
      return { client, admin: client.kafka.admin({ retry: { retries: 0 } }) }
    }),
    ({ admin, client }) => close(client, () => admin.disconnect(), closeGraceMillis)
  ).pipe(
    Effect.flatMap(({ admin }) =>
      Effect.as(
        ask(() => admin.connect()),
        admin
      )
    )
  )

/** Runs `use` with an admin client of its own: for questions so rare that a permanent connection would only be one more to repair. */
export const withAdmin =
  (clients: Clients) =>
  <A>(use: (admin: Admin) => Effect.Effect<A, unknown>, server?: string): Effect.Effect<A, unknown> =>
    Effect.scoped(Effect.flatMap(connected(clients, server), use))

/** Pages and metrics look every few seconds: while they do, the client stays. */
const keptIdleMillis = 15_000

/** The client believes its metadata for minutes: a newer one knows of partitions that were added, and of leaders that moved. */
const keptAgeMillis = 60_000

/**
 * Runs questions with one admin client. All who ask at once share it, and it is kept for the next ones.
 *
 * A client is thrown away with its first failure. The question is asked once more then: a kept connection may have ended long ago.
 */
export const withKeptAdmin = Effect.fnUntraced(function* (clients: Clients) {
  let connectedMillis = -Infinity
  const ref = yield* RcRef.make({
    acquire: Effect.tap(connected(clients), () => Effect.map(Monotonic.millis, (now) => void (connectedMillis = now))),
    idleTimeToLive: keptIdleMillis
  })
  const discard = RcRef.invalidate(ref)
  const discardOld = Effect.flatMap(Monotonic.millis, (now) =>
    now - connectedMillis > keptAgeMillis ? discard : Effect.void
  )
  return <A>(use: (admin: Admin) => Effect.Effect<A, unknown>): Effect.Effect<A, unknown> =>
    Effect.andThen(discardOld, RcRef.get(ref)).pipe(
      Effect.flatMap(use),
      Effect.onError(() => discard),
      Effect.scoped,
      Effect.retry({ times: 1 })
    )
})
