/**
 * What happened, as a story: what was armed, what struck, and what came of it. It ends as the stories of the lab do, with whether all is well.
 *
 * @import { Step } from "../../story.js"
 */
import { withQuery } from "../../api.js"
import { number } from "../../format.js"
import { html } from "../../html.js"
import { useLoad } from "../../load.js"
import { Loaded, Section } from "../../parts.js"
import { Story } from "../../story.js"
import { verdictOf } from "./SumsSection.js"

/** What is done here appears in the story within this time. */
const refreshMillis = 2_000

/** As many as a person reads. */
const told = 30

/** @type {Readonly<Record<string, (point: string, delayMillis: number) => string>>} */
const strikes = {
  crash: (point) => `ends at ${point}, as by kill -9`,
  fail: (point) => `throws at ${point}`,
  delay: (point, delayMillis) => `waits ${number(delayMillis)} ms at ${point}`,
  duplicate: (point) => `does the step of ${point} twice`,
  "lose-ack": (point) => `does the step of ${point}, and takes it for failed`
}

const ofAudit = (/** @type {any} */ { action, actor, after, at, reason, subject, subjectId }) => ({
  at,
  what: `${action} ${subject} ${subjectId}: ${Object.entries(after ?? {})
    .map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ")}`,
  by: actor,
  reason
})

const ofStrike = (/** @type {any} */ { action, at, delayMillis, point, process }) => ({
  at,
  what: `A fault strikes: the process ${process} ${strikes[action]?.(point, delayMillis) ?? `has ${action} at ${point}`}`,
  tone: "bad"
})

/**
 * In the order of time. Equal steps in a row are one, with their count.
 *
 * @param {ReadonlyArray<Step>} steps
 * @returns {ReadonlyArray<Step>}
 */
export const storyOf = (steps) => {
  /** @type {Array<{ step: Step, count: number }>} */
  const runs = []
  for (const step of steps.toSorted((a, b) => a.at.localeCompare(b.at))) {
    const last = runs.at(-1)
    if (last !== undefined && last.step.what === step.what && last.step.reason === step.reason) last.count += 1
    else runs.push({ step, count: 1 })
  }
  return runs
    .slice(-told)
    .map(({ count, step }) => (count === 1 ? step : { ...step, what: `${step.what} (${number(count)} times)` }))
}

/** @param {{ readonly sums: any, readonly faults: any, readonly others?: ReadonlyArray<Step> }} props */
export const StorySection = ({ faults, others = [], sums }) => {
  const ofSubject = (/** @type {string} */ subject) =>
    useLoad(withQuery("/admin/audit", { subject, limit: told }), { everyMillis: refreshMillis })
  const armed = ofSubject("fault point")
  const gateway = ofSubject("sandbox gateway")
  const end =
    sums.data === undefined || sums.data.orders === 0
      ? []
      : [{ at: sums.data.at, what: verdictOf(sums.data), tone: "end" }]
  return html`<${Section} title="What happened">
    <${Loaded} load=${armed} what="Reading the audit"
      >${(/** @type {any} */ page) =>
        html`<${Story}
          steps=${[
            ...storyOf([
              ...[...page.items, ...(gateway.data?.items ?? [])].map(ofAudit),
              ...(faults.data?.strikes ?? []).map(ofStrike),
              ...others
            ]),
            ...end
          ]}
        />`}<//
    >
  <//>`
}
