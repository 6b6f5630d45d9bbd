/** The alerts of docs/alerts, held by Prometheus' own checker: each fires for what it is about, ends, and wakes nobody for less. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Promtool from "../support/Promtool.ts"
import { alertCases, phases, quietCases } from "./alertCases.ts"
import { rules } from "./AlertRules.ts"

const promtool = await Effect.runPromise(Promtool.find)
const missing =
  "missing" in promtool ? `none of docs/Alerts.test.ts ran (rules for Prometheus): ${promtool.missing}` : ""
const command = "command" in promtool ? promtool.command : ""

it("promtool is here, or CI is red", () => {
  // oxlint-disable-next-line no-console
  if (missing !== "") console.warn(missing)
  if (process.env["CI"] === "true") assert.strictEqual(missing, "")
})

it("every rule has a case", () => {
  assert.sameMembers(
    alertCases.map(({ alert }) => alert),
    rules.map(({ alert }) => alert)
  )
})

const end = phases.healthy + phases.ill

describe.skipIf(missing !== "")("by promtool", () => {
  for (const { alert, series } of alertCases) {
    const { forMinutes } = rules.find((rule) => rule.alert === alert) ?? { forMinutes: 0 }
    it.live(`${alert} fires, alone, and ends`, () =>
      Promtool.testRules(command, [
        {
          name: alert,
          series,
          firing: {
            [phases.healthy - 1]: [],
            ...(forMinutes === 0 ? {} : { [phases.healthy + forMinutes - 1]: [] }),
            [end - 1]: [alert],
            [end + phases.healthyAgain - 1]: []
          }
        }
      ])
    )
  }

  for (const [name, series] of Object.entries(quietCases)) {
    it.live(`${name}: nothing fires`, () =>
      Promtool.testRules(command, [
        { name, series, firing: Object.fromEntries([20, 26, 28, 30, 35, 45, 60, 90].map((minute) => [minute, []])) }
      ])
    )
  }

  it.live("a rule that does not fire is red", () =>
    Effect.gen(function* () {
      const healthy = { name: "healthy", series: { outbox_dead_letters: [0, 0] }, firing: { 1: ["OutboxDeadLetters"] } }
      const failure = yield* Effect.flip(Promtool.testRules(command, [healthy]))
      assert.include(failure.message, "OutboxDeadLetters")
    })
  )
})
