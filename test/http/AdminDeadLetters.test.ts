/** Dead letters of both sides through /admin: lists, causes, decisions, and many at once. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { ask, audited, deadAtConsumer, deadEvents, hostile, pagesOf, service } from "./Admin.ts"

const reason = "the limit is raised"
const unknown = "01890a5d-ac96-774b-bcce-b302099a8057"

const countOf = (table: "outbox_dead_letters" | "inbox_dead_letters" | "operator_audit") =>
  Effect.map(
    Effect.flatMap(SqlClient.SqlClient, (sql) => sql`SELECT count(*)::int4 AS count FROM ${sql(table)}`),
    ([row]) => Number(row?.["count"])
  )

layer(service, { excludeTestServices: true })((it) => {
  it.effect("ten thousand dead letters come in pages of bounded size, each event once, the newest first", () =>
    Effect.gen(function* () {
      const ids = yield* deadEvents(10_000)
      const { items, largestBytes, pages } = yield* pagesOf("/dead-letters?limit=200")
      assert.strictEqual(pages, 50)
      assert.isBelow(largestBytes, 200_000)
      assert.deepStrictEqual(
        items.map(({ eventId }) => eventId),
        ids.toSorted().toReversed()
      )
      const { json } = yield* ask("/outbox/causes")
      assert.deepStrictEqual(
        json.items.map(({ cause, count }: Record<string, unknown>) => [cause, count]),
        [
          ["message … is too large", 6_667],
          ["offset … is gone", 3_333]
        ]
      )
      assert.strictEqual((yield* ask("/outbox")).json.dead, 10_000)
    })
  )

  it.effect(
    "a preview says what a retry of many would do, and changes nothing; the retry does it, and audits each",
    () =>
      Effect.gen(function* () {
        const cause = "a limit of its own"
        yield* deadEvents(150, { error: cause })
        yield* deadEvents(20, { error: "another" })
        const filter = { cause }
        const dead = yield* countOf("outbox_dead_letters")
        const before = yield* countOf("operator_audit")
        const preview = yield* ask("/dead-letters/retry", { filter, reason, preview: true })
        assert.deepInclude(preview.json, { preview: true, matching: 150, groups: [{ cause, count: 150 }] })
        assert.strictEqual(preview.json.examples.length, 5)
        assert.strictEqual(yield* countOf("outbox_dead_letters"), dead)
        assert.strictEqual(yield* countOf("operator_audit"), before)

        const done = yield* ask("/dead-letters/retry", { filter, reason })
        assert.deepStrictEqual(done.json, { preview: false, retried: 150, refused: [], refusedCount: 0 })
        assert.strictEqual(yield* countOf("outbox_dead_letters"), dead - 150)
        assert.deepInclude((yield* ask("/dead-letters/retry", { filter, reason })).json, { retried: 0 })
        assert.strictEqual(yield* countOf("operator_audit"), before + 150)
      })
  )

  it.effect("all that match are given up, on both sides, and others stay", () =>
    Effect.gen(function* () {
      const cause = "nobody wants it"
      yield* deadEvents(120, { error: cause })
      yield* deadAtConsumer(3, "dead", cause)
      for (const [path, count, other] of [
        ["/dead-letters/discard", 120, "/outbox/causes"],
        ["/inbox/dead-letters/discard", 3, "/inbox/causes"]
      ] as const) {
        const filter = { cause }
        assert.deepInclude((yield* ask(path, { filter, preview: true })).json, { preview: true, matching: count })
        const before = yield* countOf("operator_audit")
        const done = yield* ask(path, { filter, reason })
        assert.deepStrictEqual(done.json, { preview: false, discarded: count, refused: [], refusedCount: 0 })
        assert.strictEqual(yield* countOf("operator_audit"), before + count)
        assert.deepInclude((yield* ask(path, { filter, reason })).json, { discarded: 0 })
        const causes = yield* ask(`${other}?cause=${encodeURIComponent(cause)}`)
        assert.isTrue(causes.json.items.every(({ status }: Record<string, unknown>) => status === "discarded"))
      }
    })
  )

  it.effect("of equal clicks at once one changes something and is audited, and all are answered 200", () =>
    Effect.gen(function* () {
      const [outbox] = yield* deadEvents(1)
      const [inbox] = yield* deadAtConsumer(1)
      const [gap] = yield* deadAtConsumer(1, "gap")
      for (const [path, subjectId, action] of [
        [`/dead-letters/${outbox}/retry`, outbox!, "retry"],
        [`/inbox/dead-letters/analytics/${inbox}/retry`, `analytics ${inbox}`, "retry"],
        [`/inbox/dead-letters/analytics/${gap}/skip`, `analytics ${gap}`, "skip"]
      ] as const) {
        const clicks = yield* Effect.all(
          Array.from({ length: 5 }, () => ask(path, { reason }, { headers: { "x-operator": "ada" } })),
          { concurrency: 5 }
        )
        assert.deepStrictEqual(
          clicks.map(({ json, status }) => [status, json.status]),
          clicks.map(() => [200, "retrying"])
        )
        assert.strictEqual(clicks.filter(({ json }) => json.changed === true).length, 1, path)
        assert.isFalse((yield* ask(path, { reason })).json.changed)
        assert.deepStrictEqual(yield* audited(subjectId), [`${action} by admin/ada: ${reason}`])
      }
    })
  )

  it.effect("a discarded event stays discarded, and a retry of it is refused with 409", () =>
    Effect.gen(function* () {
      const [outbox] = yield* deadEvents(1)
      const [inbox] = yield* deadAtConsumer(1)
      for (const path of [`/dead-letters/${outbox}`, `/inbox/dead-letters/analytics/${inbox}`]) {
        assert.deepInclude((yield* ask(`${path}/discard`, { reason })).json, { status: "discarded", changed: true })
        assert.deepInclude((yield* ask(`${path}/discard`, { reason })).json, { status: "discarded", changed: false })
        const refused = yield* ask(`${path}/retry`, { reason })
        assert.strictEqual(refused.status, 409)
        assert.include(refused.json.detail, "was discarded, which is final")
      }
      const { json } = yield* ask(`/outbox/events?status=discarded&limit=1`)
      assert.strictEqual(json.items[0].eventId, outbox)
      assert.deepInclude((yield* ask(`/outbox/events/${outbox?.toUpperCase()}`)).json, {
        eventId: outbox,
        status: "discarded"
      })
    })
  )

  it.effect("the consumers' dead letters are listed, grouped and retried by the same filters", () =>
    Effect.gen(function* () {
      yield* deadAtConsumer(30, "dead", "a cause of its own")
      const filter = "consumer=analytics&cause=a%20cause%20of%20its%20own&status=dead"
      const { items, pages } = yield* pagesOf(`/inbox/dead-letters?limit=7&${filter}`)
      assert.deepStrictEqual([pages, items.length], [5, 30])
      assert.strictEqual(new Set(items.map(({ eventId }) => eventId)).size, 30)
      const body = { filter: { consumer: "analytics", cause: "a cause of its own", sinceSeconds: 600 } }
      const preview = yield* ask("/inbox/dead-letters/retry", { ...body, preview: true })
      assert.deepInclude(preview.json, { matching: 30 })
      assert.match(preview.json.examples[0], /^analytics /)
      assert.deepInclude((yield* ask("/inbox/dead-letters/retry", { ...body, reason })).json, { retried: 30 })
      assert.deepStrictEqual((yield* ask(`/inbox/dead-letters?${filter}`)).json, { items: [], nextCursor: null })
      const causes = yield* ask("/inbox/causes?cause=a%20cause%20of%20its%20own")
      assert.deepStrictEqual(
        causes.json.items.map(({ count, status }: Record<string, unknown>) => [count, status]),
        [[30, "retrying"]]
      )
    })
  )

  it.effect("hostile texts come back as they were stored, and filter by themselves", () =>
    Effect.gen(function* () {
      const [id] = yield* deadEvents(1, { error: hostile, type: hostile, aggregate: hostile })
      const query = new URLSearchParams({ aggregateId: hostile }).toString()
      const { json } = yield* ask(`/dead-letters?${query}`)
      assert.strictEqual(json.items.length, 1)
      assert.deepInclude(json.items[0], { eventId: id, eventType: hostile, aggregateId: hostile, lastError: hostile })
      yield* ask(`/dead-letters/${id}/retry`, { reason: hostile })
      assert.deepStrictEqual(yield* audited(id!), [`retry by admin: ${hostile}`])
    })
  )

  it.effect("bad input names every wrong field, and an unknown name those that are known", () =>
    Effect.gen(function* () {
      const pointersOf = (answer: Effect.Success<ReturnType<typeof ask>>) => {
        assert.strictEqual(answer.status, 400)
        return answer.json.errors
          .map((error: Record<string, string>) => `${error["in"]} ${error["pointer"]}`)
          .toSorted()
      }
      assert.deepStrictEqual(
        pointersOf(yield* ask("/outbox/events?limit=201&cursor=x&status=nope&sinceSeconds=0&topik=1")),
        ["query /cursor", "query /limit", "query /sinceSeconds", "query /status", "query /topik"]
      )
      assert.deepStrictEqual(pointersOf(yield* ask("/dead-letters?type=%00")), ["query /type"])
      assert.deepStrictEqual(pointersOf(yield* ask("/inbox/dead-letters?cursor=x")), ["query /cursor"])
      assert.deepStrictEqual(pointersOf(yield* ask(`/dead-letters/${unknown}/retry`, { reason: " " })), [
        "body /reason"
      ])
      assert.deepStrictEqual(pointersOf(yield* ask(`/dead-letters/1/retry`, {})), ["body /reason", "path /id"])
      assert.deepStrictEqual(pointersOf(yield* ask("/dead-letters/retry", { reason })), ["body /filter"])
      assert.deepStrictEqual(pointersOf(yield* ask("/dead-letters/retry", { filter: {} })), ["body /reason"])
      const named = yield* ask("/inbox/dead-letters?consumer=analitics")
      assert.deepStrictEqual(pointersOf(named), ["query /consumer"])
      assert.include(named.json.detail, "must be one of analytics")
      assert.deepStrictEqual(
        pointersOf(yield* ask("/inbox/dead-letters/retry", { filter: { consumer: "x" }, reason })),
        ["body /filter/consumer"]
      )
      assert.deepStrictEqual(pointersOf(yield* ask("/dead-letters?topic=x")), ["query /topic"])
      for (const path of [
        `/outbox/events/${unknown}`,
        `/dead-letters/${unknown}/retry`,
        `/inbox/dead-letters/analytics/${unknown}/retry`,
        `/inbox/dead-letters/nobody/${unknown}/retry`
      ]) {
        const { json, status } = yield* ask(path, path.endsWith("retry") ? { reason } : undefined)
        assert.deepInclude({ status, title: json.title }, { status: 404, title: "Not Found" }, path)
      }
    })
  )
})
