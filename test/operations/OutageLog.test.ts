/** What an operator reads of an outage, line by line. */
import { assert, describe, it } from "@effect/vitest"
import { Data, Effect, Layer, Logger, References } from "effect"
import { TestClock } from "effect/testing"
import * as OutageLog from "../../src/operations/OutageLog.ts"
import * as Outages from "../../src/platform/Outages.ts"
import * as Supervised from "../../src/platform/Supervised.ts"

/** A process without outages, and its log from Info on. */
const fresh = Effect.gen(function* () {
  const lines: Array<string> = []
  const outages = yield* OutageLog.make
  const log = Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${String(message)}`))
  return { lines, outages, layer: Layer.merge(Logger.layer([log]), Layer.succeed(Outages.Outages, outages)) }
})

const broker = { subject: "the broker", reason: "connect ECONNREFUSED" }

class Unreachable extends Data.TaggedError("Unreachable")<{}> {
  get [Outages.outage]() {
    return broker
  }
}

const began = "Warn the broker is unavailable: connect ECONNREFUSED"

describe("OutageLog", () => {
  it.effect("an outage is one line when it begins, one a minute, and one when its last part works again", () =>
    Effect.gen(function* () {
      const { layer, lines, outages } = yield* fresh
      yield* Effect.gen(function* () {
        // Three loops that try again each second, for two and a half minutes.
        for (let second = 0; second < 150; second++) {
          for (const part of ["receipts", "billing", "publishing"]) yield* outages.failed(part, broker)
          yield* TestClock.adjust("1 second")
        }
        yield* outages.recovered("receipts")
        yield* outages.recovered("publishing")
        assert.deepStrictEqual(lines, [
          began,
          "Warn the broker is unavailable since 1m: connect ECONNREFUSED",
          "Warn the broker is unavailable since 2m: connect ECONNREFUSED"
        ])
        yield* outages.recovered("billing")
        assert.deepStrictEqual(lines.slice(3), [
          "Info the broker is available again: nothing waits for it any more, 2m 30s after the first failure; it was: connect ECONNREFUSED"
        ])
        yield* outages.recovered("billing")
        assert.strictEqual(lines.length, 4)
      }).pipe(Effect.provide(layer))
    })
  )

  it.effect("what flaps writes two lines a minute at most", () =>
    Effect.gen(function* () {
      const { layer, lines, outages } = yield* fresh
      yield* Effect.gen(function* () {
        for (let tenth = 0; tenth < 3_000; tenth++) {
          yield* outages.failed("publishing", broker)
          yield* TestClock.adjust("50 millis")
          yield* outages.recovered("publishing")
          yield* TestClock.adjust("50 millis")
        }
        assert.isAtMost(lines.length, 2 * 5)
        assert.isAtLeast(lines.filter((line) => line === began).length, 5)
      }).pipe(Effect.provide(layer))
    })
  )

  it.effect("a reason of another kind is told at once, and so is an outage of another subject", () =>
    Effect.gen(function* () {
      const { layer, lines, outages } = yield* fresh
      const denied = (what: string) => ({ subject: "topic orders", reason: `${what} is denied`, kind: what })
      yield* Effect.gen(function* () {
        yield* outages.failed("publishing", broker)
        for (let attempt = 0; attempt < 3; attempt++) {
          yield* outages.failed("publishing", denied("Write"))
          yield* outages.failed("receipts", denied("Read"))
        }
        assert.deepStrictEqual(lines, [
          began,
          "Info the broker is available again: nothing waits for it any more, 1s after the first failure; it was: connect ECONNREFUSED",
          "Warn topic orders is unavailable: Write is denied",
          "Warn topic orders is unavailable: Read is denied"
        ])
      }).pipe(Effect.provide(layer))
    })
  )

  it.effect("a part that has nothing to do any more keeps no outage open", () =>
    Effect.gen(function* () {
      const { layer, lines, outages } = yield* fresh
      yield* Effect.gen(function* () {
        yield* outages.failed("publishing to orders/1", broker)
        yield* TestClock.adjust("10 minutes")
        // The lane went to another process, and comes back after days.
        yield* outages.failed("publishing to orders/1", broker)
        assert.deepStrictEqual(lines, [began, began])
      }).pipe(Effect.provide(layer))
    })
  )

  it.effect("a loop that shows progress before it fails does not end its outage", () =>
    Effect.gen(function* () {
      const { layer, lines } = yield* fresh
      yield* Effect.gen(function* () {
        yield* Supervised.forkLoop("receipts", (stamp) => Effect.andThen(stamp, new Unreachable()))
        yield* TestClock.adjust("50 seconds")
        assert.deepStrictEqual(lines, [began])
      }).pipe(Effect.scoped, Effect.provide(Layer.merge(layer, Supervised.Fibers.layer)))
    })
  )

  it.effect("supervised loops that fail on one outage write its lines, and no stack", () =>
    Effect.gen(function* () {
      const { layer, lines } = yield* fresh
      let isUp = false
      yield* Effect.gen(function* () {
        for (const name of ["receipts", "billing", "inventory", "analytics"]) {
          yield* Supervised.forkLoop(
            name,
            (stamp) =>
              Effect.andThen(
                // A loop may show progress before it does what fails.
                stamp,
                Effect.suspend(() =>
                  isUp ? Effect.forever(Effect.andThen(Effect.sleep("5 seconds"), stamp)) : new Unreachable()
                )
              ),
            { restartCapMillis: 10_000 }
          )
        }
        yield* TestClock.adjust("90 seconds")
        assert.deepStrictEqual([lines[0], lines.length], [began, 2])
        isUp = true
        yield* TestClock.adjust("1 minute")
        assert.match(
          lines.slice(2).join("\n"),
          /^Info the broker is available again: nothing waits for it any more, 1m \d+s after the first failure; it was: [^\n]+$/
        )
      }).pipe(Effect.scoped, Effect.provide(Layer.merge(layer, Supervised.Fibers.layer)))
    }).pipe(Effect.provideService(References.MinimumLogLevel, "Info"))
  )
})
