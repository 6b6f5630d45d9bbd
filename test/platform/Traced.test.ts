import { assert, it } from "@effect/vitest"
import { Tracer } from "effect"
import { randomUUID } from "node:crypto"
import * as Traced from "../../src/platform/Traced.ts"
import * as Tracing from "../../src/platform/Tracing.ts"

it("ids that nobody collects make a header that others can read", () => {
  const span = Traced.uncollected(undefined, randomUUID)
  const read = Tracing.fromTraceparent(Tracing.toTraceparent(span))
  assert.strictEqual(read?.traceId, span.traceId)
  assert.strictEqual(read?.spanId, span.spanId)
  assert.isTrue(read?.sampled)
})

it("a span continues its parent's trace, and has an id of its own", () => {
  const parent = Tracer.externalSpan({ traceId: "1".repeat(32), spanId: "2".repeat(16), sampled: false })
  const { sampled, spanId, traceId } = Traced.uncollected(parent, randomUUID)
  assert.strictEqual(traceId, parent.traceId)
  assert.isFalse(sampled)
  assert.match(spanId, /^[\da-f]{16}$/)
  assert.notStrictEqual(spanId, parent.spanId)
})
