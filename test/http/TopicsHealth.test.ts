/** Health of a topic with unsafe settings. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { Health, HealthParts, Readiness } from "../../src/http/Health.ts"
import * as TopicsHealth from "../../src/http/TopicsHealth.ts"
import { TopicChecks } from "../../src/operations/TopicChecks.ts"
import { RetentionSettings } from "../../src/platform/Retention.ts"
import { TestDatabase } from "../support/TestDatabase.ts"
import * as TestProcess from "../support/TestProcess.ts"

const world = Layer.mergeAll(TopicsHealth.layer, Readiness.layerWorking).pipe(
  Layer.provideMerge(TopicChecks.layer),
  Layer.provideMerge(TestProcess.broker),
  Layer.provideMerge(TestProcess.outbox),
  Layer.provideMerge(Layer.mergeAll(TestDatabase.layer, HealthParts.layer, Readiness.layer, TestProcess.quiet))
)

it.live("a topic whose settings break a promise degrades the service, and is named with the setting to change", () =>
  Effect.gen(function* () {
    // A report is shared for a second, so each of these has a Health of its own.
    const report = Effect.flatMap(Health, ({ report }) => report).pipe(Effect.provide(Layer.fresh(Health.layer)))
    assert.deepStrictEqual((yield* report).parts["topics"], { status: "ready", topics: [] })
    const { inspect } = yield* TopicChecks
    yield* inspect("counters")
    const { parts, status } = yield* report
    assert.strictEqual(status, "degraded")
    assert.strictEqual(parts["topics"]?.status, "degraded")
    assert.match(JSON.stringify(parts["topics"]), /for 3 days only .* set INBOX_RETENTION_DAYS to 7 or more/)
    // A topic that the broker refuses is listed with the reason.
    yield* Effect.flip(inspect("no spaces please"))
    assert.match(JSON.stringify((yield* report).parts["topics"]), /"unavailable":"a name has 1 to 249 letters/)
  }).pipe(Effect.provide(world), Effect.provideService(RetentionSettings, { outboxDays: 3, inboxDays: 3, taskDays: 0 }))
)
