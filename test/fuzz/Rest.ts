/** Waits until everything is at rest after the last fault, and then compares all books. */
import { Effect, Layer, References, Result, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { consumerNames } from "../../src/main/Names.ts"
import { InboxDeadLetters } from "../../src/operations/InboxDeadLetters.ts"
import * as DirectWakeups from "../../src/platform/DirectWakeups.ts"
import { differences, unrest } from "../soak/payments/Books.ts"
import type { Records } from "./Records.ts"

/** Rest comes within seconds. A run that does not come to rest has found a mistake. */
const restTimeout = "60 seconds"

const operator = { actor: "fuzzer", reason: "a hostile record" }

/**
 * The operator gives up what can't be applied: a hostile record in an order's name holds that order until then. What was decided meanwhile
 * is decided.
 */
const discardDead = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const letters = yield* InboxDeadLetters
  const dead = yield* sql<{ readonly consumer: string; readonly id: string }>`
    SELECT consumer_name AS consumer, event_id AS id FROM inbox_dead_letters WHERE status = 'dead' LIMIT 500`
  yield* Effect.forEach(dead, ({ consumer, id }) => Effect.ignore(letters.discard(consumer, id, operator)), {
    discard: true
  })
}).pipe(
  Effect.provide(InboxDeadLetters.layer.pipe(Layer.provide(DirectWakeups.layer))),
  // Hundreds of decisions, each a line.
  Effect.provideService(References.MinimumLogLevel, "Warn")
)

/** Events of ours that a consumer has not applied. */
const notApplied = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<{ readonly sentence: string }>`
    SELECT name || ' has not applied ' || count(*) || ' events, the first at ' || min(broker_partition || ':' || broker_offset) AS sentence
    FROM event_log CROSS JOIN unnest(${consumerNames}::text[]) AS name
    WHERE NOT EXISTS (SELECT FROM processed_events AS p WHERE p.consumer_name = name AND p.event_id = event_log.event_id)
    GROUP BY name`
)

/** Every broken promise, as a sentence. Records are looked for before the operator gives them up, and afterwards. */
export const problems = (records: Records, wrongAmounts: ReadonlySet<string>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const waiting = Effect.gen(function* () {
      yield* discardDead
      const late = (yield* unrest).map(({ count, what }) => `${count} ${what}`)
      return [...late, ...(yield* notApplied).map(({ sentence }) => sentence), ...(yield* records.problems)]
    })
    const last = yield* Effect.result(
      Effect.repeat(waiting, { until: (list) => list.length === 0, schedule: Schedule.spaced("500 millis") }).pipe(
        Effect.timeout(restTimeout)
      )
    )
    const restless = Result.isSuccess(last) ? [] : (yield* waiting).map((what) => `it does not come to rest: ${what}`)
    // A mail whose sender was killed is not sent again by itself; the books name a payment's recovery.
    const dead = yield* sql<{ readonly sentence: string }>`
      SELECT 'task ' || task_id || ' (' || task_type || ') is dead: ' || coalesce(last_error, '') AS sentence
      FROM outbox_tasks WHERE state = 'dead' AND task_type NOT IN ('payment.recover', 'email')
      UNION ALL SELECT 'event ' || event_id || ' is a dead letter of the outbox' FROM outbox_dead_letters`
    // A charge of another amount is looked after by a person: nothing else may become of it.
    const books = (yield* differences).filter(
      (sentence) => !(sentence.endsWith(" is manual") && [...wrongAmounts].some((id) => sentence.includes(id)))
    )
    return [...restless, ...dead.map(({ sentence }) => sentence), ...books]
  })
