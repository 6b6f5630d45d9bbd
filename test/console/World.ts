/** A real service with the console, signed in to by a real browser, and the faults that its pages are tested with. */
import { assert } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Broker } from "../../src/brokers/Broker.ts"
import { MailDeliveries } from "../../src/application/mail/MailDeliveries.ts"
import { EmailAddress } from "../../src/application/mail/MailTransport.ts"
import { emailType } from "../../src/application/tasks/Email.ts"
import * as ServiceProcess from "../../src/cli/ServiceProcess.ts"
import { ordersTopic } from "../../src/domain/Events.ts"
import { laneOf, partitionOf } from "../../src/outbox/Lane.ts"
import { Transaction } from "../../src/platform/Transaction.ts"
import { Tasks } from "../../src/tasks/Tasks.ts"
import { TaskWakeup } from "../../src/tasks/TaskWakeup.ts"
import { gateway, sendElsewhere } from "../http/Service.ts"
import { GatewayServer } from "../../src/sandbox/GatewayServer.ts"
import * as Browser from "../support/Browser.ts"
import { eventually } from "../support/Counters.ts"
import { Directory, environmentWith } from "../support/OperatorCommand.ts"
import { order as makeOrder } from "../support/Subscribed.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"
import { plantedEnv } from "../mutants/planted.ts"

/** The operator's token of the tests. */
export const token = "the-operator-of-these-tests"

/** A browser and a database of the file's own, with a gateway that the test can make silent. */
export const layer = Layer.mergeAll(Tasks.layer, MailDeliveries.layer, TestProcess.broker, gateway).pipe(
  Layer.provideMerge(TaskWakeup.layer),
  Layer.provideMerge(TestProcess.platform),
  Layer.provideMerge(Browser.Browser.layer),
  Layer.provideMerge(Layer.mergeAll(Directory.layer, TestProcess.quiet)),
  Layer.provideMerge(TestDatabase.layer)
)

/** One attempt each, so that a refusal is a dead letter and a failed recovery needs a person, at once. */
const atOnce = { OUTBOX_MAX_ATTEMPTS: "1", GATEWAY_TIMEOUT_MILLIS: "500", PAYMENT_RECOVER_DELAYS: "1ms,1ms" }

/** Starts the service with these variables and roles: all roles by default. */
export const start = Effect.fnUntraced(function* (variables: Readonly<Record<string, string>> = {}, roles?: string) {
  const env = yield* environmentWith({ ADMIN_TOKEN: token, ...plantedEnv(), ...variables })
  const service = yield* ServiceProcess.start({ env, ...(roles === undefined ? {} : { roles }) })
  return { ...service, url: service.url! }
})

/** Starts the service beside the test's gateway. */
export const startBeside = Effect.fnUntraced(function* (
  variables: Readonly<Record<string, string>> = {},
  roles?: string
) {
  const { url } = yield* GatewayServer
  return yield* start(
    {
      ...atOnce,
      GATEWAY_URL: url,
      GATEWAY_WEBHOOK_SECRET: "a-secret-of-two-companies",
      ...variables
    },
    roles
  )
})

/** Asks the service as the operator. */
export const ask = (url: string, path: string, body?: unknown) =>
  sendElsewhere(`${url}${path}`, {
    headers: { authorization: `Bearer ${token}` },
    ...(body === undefined ? {} : { body })
  })

/** Signs in by the form, and opens the page. */
export const signIn = Effect.fnUntraced(function* (page: Browser.BrowserPage, path = "/console", as = token) {
  yield* page.visit(path)
  yield* page.fill("Operator's token", as)
  yield* page.click("button", "Sign in")
  yield* page.seeNoMore("Operator's token")
})

/** A page of the console, signed in. A refusal to who is not signed in yet is no failure. */
export const onPage = <A, E, R>(
  options: Browser.PageOptions & { readonly path: string; readonly as?: string },
  body: (page: Browser.BrowserPage) => Effect.Effect<A, E, R>
) =>
  Effect.flatMap(Browser.Browser, ({ use }) =>
    use(
      {
        ...options,
        allowed: new RegExp(`status of 401${options.allowed === undefined ? "" : `|${options.allowed.source}`}`)
      },
      (page) => Effect.andThen(signIn(page, options.path, options.as), body(page))
    )
  )

/** One value of one row. */
export const one = (query: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.orDie(Effect.map(sql.unsafe<{ readonly value: unknown }>(query), ([row]) => row?.value))
  )

/** Waits until the query's value is the one that is wanted. */
export const becomes = (what: string, query: string, wanted: unknown) =>
  eventually(
    what,
    Effect.map(one(query), (value) => value === wanted)
  )

/** Waits until the action with this reason is in the audit: in exactly one row. */
export const audited = Effect.fnUntraced(function* (reason: string, expected: Readonly<Record<string, unknown>>) {
  const sql = yield* SqlClient.SqlClient
  const found = sql<Readonly<Record<string, unknown>>>`
    SELECT actor, action, subject, subject_id AS "subjectId" FROM operator_audit WHERE reason = ${reason} ORDER BY audit_id`
  yield* eventually(
    `the reason "${reason}" in the audit`,
    Effect.map(found, (rows) => rows.length > 0)
  )
  const rows = yield* found
  assert.strictEqual(rows.length, 1, `rows of the audit with the reason ${reason}`)
  assert.deepInclude(rows[0], expected)
})

/** Fills the form of an open action in and sends it: a reason is all that most ask for. */
export const giveReason = Effect.fnUntraced(function* (page: Browser.BrowserPage, reason: string, verb: string) {
  yield* page.fill("Reason", reason)
  yield* page.click("button", verb)
})

/** An order of `lines` lines of some 130 bytes. */
export const newOrder = (lines = 1, customerId = "ada") => ({
  customerId,
  currency: "EUR",
  lines: Array.from({ length: lines }, (_, index) => ({
    sku: `${"s".repeat(90)}${index}`,
    quantity: 1,
    unitAmountMinor: 1_250
  }))
})

/** Makes the topic refuse the event of an order with a hundred lines. The embedded broker reads its limit at every append. */
export const limitTopic = (bytes: number) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`
      INSERT INTO broker_topics (topic, partitions, max_message_bytes) VALUES ('orders', 8, ${bytes})
      ON CONFLICT (topic) DO UPDATE SET max_message_bytes = excluded.max_message_bytes`
    yield* sql`
      INSERT INTO broker_partitions (topic, partition) SELECT 'orders', generate_series(0, 7) ON CONFLICT DO NOTHING`
  })

const countIs = (what: string, count: Effect.Effect<number, never, SqlClient.SqlClient>, wanted: number) =>
  eventually(
    what,
    Effect.map(count, (n) => n === wanted)
  )

const count = (from: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.orDie(
      Effect.map(sql.unsafe<{ readonly n: number }>(`SELECT count(*)::int4 AS n FROM ${from}`), ([row]) => row?.n ?? 0)
    )
  )

/** An event that the broker has refused for good. Answers with its id and its order's. */
export const outboxDeadLetter = Effect.fnUntraced(function* (url: string, customerId = "ada") {
  const sql = yield* SqlClient.SqlClient
  yield* limitTopic(4_000)
  const placed = yield* ask(url, "/orders", newOrder(100, customerId))
  assert.strictEqual(placed.status, 201, placed.text)
  const orderId: string = placed.json.id
  yield* countIs("the event to be dead", count(`outbox_dead_letters WHERE aggregate_id = '${orderId}'`), 1)
  const [row] = yield* sql<{
    readonly id: string
  }>`SELECT event_id::text AS id FROM outbox_dead_letters WHERE aggregate_id = ${orderId}`
  return { orderId, eventId: row!.id }
})

/** A record that no consumer can read, and an order whose payment never comes: dead letters and gaps of all four consumers. */
export const inboxDeadLetters = Effect.fnUntraced(function* (hostile = "{broken") {
  const broker = yield* Broker
  yield* broker.ensureTopic(ordersTopic, 8)
  const send = (key: string, ...values: ReadonlyArray<string>) =>
    Effect.forEach(values, (text) =>
      broker.publish({
        topic: ordersTopic,
        partition: partitionOf(laneOf(key), 8),
        records: [{ key, headers: {}, value: new TextEncoder().encode(text) }]
      })
    )
  const [dead, gap] = [makeOrder(), makeOrder()]
  yield* send(dead.id, JSON.stringify(dead.placed()), hostile)
  const [placed, , refunded] = [gap.placed(), gap.paid(), gap.refunded()]
  yield* send(gap.id, JSON.stringify(placed), JSON.stringify(refunded))
  yield* countIs(
    "every consumer to hold both",
    count(`inbox_holds WHERE aggregate_id IN ('${dead.id}', '${gap.id}')`),
    8
  )
  return { dead: dead.id, gap: gap.id, gapEvent: refunded.eventId }
})

/** Tells the test's gateway how to behave. */
export const behave = (behaviour: object) =>
  Effect.flatMap(GatewayServer, ({ url }) => sendElsewhere(`${url}/behaviour`, { method: "PUT", body: behaviour }))

/** Pays the order, with a key of its own for each method. */
export const pay = (url: string, orderId: string, paymentMethod = "pm_ok") =>
  sendElsewhere(`${url}/orders/${orderId}/pay`, {
    body: { paymentMethod },
    headers: { authorization: `Bearer ${token}`, "idempotency-key": `pay-${paymentMethod}-${orderId}` }
  })

/** A paid order whose version 2 the topic has lost before billing has read it: billing misses it. */
export const orderWithGap = Effect.fnUntraced(function* (url: string) {
  const sql = yield* SqlClient.SqlClient
  const placed = yield* ask(url, "/orders", newOrder())
  const orderId: string = placed.json.id
  yield* countIs("version 1 to be applied", count(`consumer_cursors WHERE aggregate_id = '${orderId}'`), 4)
  yield* ask(url, "/admin/consumers/billing/pause", { reason: "the topic is repaired" })
  // A pause that the process has not heard of holds nothing back.
  yield* eventually(
    "the pause to be heard of",
    Effect.map(ask(url, "/health/ready"), ({ json }) => json.parts.pauses.paused.length === 1)
  )
  assert.strictEqual((yield* pay(url, orderId, "pm_declined")).status, 402)
  yield* countIs("version 2 to be published", count(`event_log WHERE aggregate_id = '${orderId}'`), 2)
  // A consumer that has not read it would miss it, too.
  yield* countIs(
    "the others to have applied version 2",
    count(`consumer_cursors WHERE aggregate_id = '${orderId}' AND version = 2`),
    3
  )
  yield* sql`
    DELETE FROM broker_log AS l USING event_log AS e
    WHERE e.aggregate_id = ${orderId} AND e.aggregate_version = 2
      AND (l.topic, l.partition, l.record_offset) = (e.topic, e.broker_partition, e.broker_offset)`
  assert.strictEqual((yield* pay(url, orderId)).status, 200)
  yield* ask(url, "/admin/consumers/billing/resume", { reason: "it is repaired" })
  yield* countIs(
    "billing to miss version 2",
    count(`inbox_holds WHERE aggregate_id = '${orderId}' AND status = 'gap' AND consumer_name = 'billing'`),
    1
  )
  return orderId
})

/** A payment that the gateway has captured without a word: it waits for a person. The gateway answers again. */
export const manualPayment = Effect.fnUntraced(function* (url: string) {
  yield* behave({ mode: "timeout-after" })
  const placed = yield* ask(url, "/orders", newOrder())
  const paid = yield* pay(url, placed.json.id)
  assert.strictEqual(paid.status, 202, paid.text)
  const paymentId = paid.headers.get("location")!.split("/").at(-1)!
  yield* countIs(
    "the payment to wait for a person",
    count(`payments WHERE id = '${paymentId}' AND status = 'manual'`),
    1
  )
  yield* behave({ mode: "normal" })
  return { orderId: String(placed.json.id), paymentId }
})

/** A mail of which nobody knows whether it arrived; it is not sent again by itself. */
export const uncertainMail = Effect.fnUntraced(function* (subject = "Your refund") {
  const sql = yield* SqlClient.SqlClient
  const mail = { kind: "refund-notice", to: EmailAddress.make("ada@customers.example"), subject } as const
  const { taskId } = yield* Tasks.use((tasks) =>
    // Far in the future: no worker takes it before the delivery is there.
    Transaction.run(tasks.enqueue(emailType, { ...mail, text: "Hello\n" }, { delayMillis: 86_400_000 }))
  )
  const deliveries = yield* MailDeliveries
  yield* deliveries.begin({ taskId, ...mail }, "hold")
  yield* deliveries.record({ taskId, number: 1 }, "uncertain", "the server was silent after the first byte")
  yield* sql`UPDATE outbox_tasks SET state = 'dead', finished_at = clock_now(), attempts = 1, last_error = 'it may have been sent' WHERE task_id = ${taskId}::uuid`
  return taskId
})

/** A task that has failed for good, of a type that this service runs. */
export const deadTask = Effect.fnUntraced(function* (error = "the report's query was cancelled") {
  const sql = yield* SqlClient.SqlClient
  const { taskId } = yield* Tasks.use((tasks) =>
    Transaction.run(
      tasks.enqueue(
        emailType,
        { kind: "receipt", to: EmailAddress.make("bob@customers.example"), subject: "Your receipt", text: "Thanks\n" },
        { delayMillis: 86_400_000 }
      )
    )
  )
  yield* sql`
    UPDATE outbox_tasks
    SET state = 'dead', attempts = 10, last_error = ${error}, finished_at = clock_now(),
        history = jsonb_build_array(jsonb_build_object('attempt', 10, 'at', '2026-01-01T00:00:00.000Z', 'error', ${error}::text))
    WHERE task_id = ${taskId}::uuid`
  return taskId
})
