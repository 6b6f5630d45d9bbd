/** Questions about topics and groups, each with an admin client of its own. */
import { Effect } from "effect"
import type { Admin } from "kafkajs"
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

/**
 * Runs `use` with an admin client of its own, which asks `server` alone where that is given. Questions are so rare that a permanent connection would
 * only be one more to repair.
 */
export const withAdmin =
  (clients: Clients) =>
  <A>(use: (admin: Admin) => Effect.Effect<A, unknown>, server?: string): Effect.Effect<A, unknown> =>
    Effect.acquireUseRelease(
      Effect.sync(() => {
        const client = clients.open({
          requestTimeoutMillis: adminRequestTimeoutMillis,
          retries: 0,
          acceptsPartialMetadata: true,
          ...(server === undefined ? {} : { server })
        })
        return { client, admin: client.kafka.admin({ retry: { retries: 0 } }) }
      }),
      ({ admin }) =>
        Effect.andThen(
          ask(() => admin.connect()),
          use(admin)
        ),
      ({ admin, client }) => close(client, () => admin.disconnect(), closeGraceMillis)
    )
