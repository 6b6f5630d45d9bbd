/**
 * What happened to one thing, in the order of time: attempts, failures, and what operators did.
 *
 * @typedef {{ readonly at: string, readonly what: string, readonly by?: string | undefined, readonly reason?: string | undefined, readonly tone?: string | undefined }} Step
 */
import { html } from "./html.js"
import { Empty, Time } from "./parts.js"

/** @param {{ readonly steps: ReadonlyArray<Step> }} props */
export const Story = ({ steps }) =>
  steps.length === 0
    ? html`<${Empty}>Nothing is recorded.<//>`
    : html`<ol class="story">
        ${steps.map(
          ({ at, by, reason, tone = "", what }, index) =>
            html`<li key=${index} class=${tone}>
              <${Time} at=${at} />
              <div>
                <p>${what}${by === undefined ? null : html` <span class="dim">by ${by}</span>`}</p>
                ${reason === undefined ? null : html`<p class="dim">“${reason}”</p>`}
              </div>
            </li>`
        )}
      </ol>`

/**
 * Failed attempts and an operator's decisions as one story.
 *
 * @param {{ readonly history?: ReadonlyArray<{ readonly attempt: number, readonly at: string, readonly error: string }>,
 *   readonly audit?: ReadonlyArray<{ readonly at: string, readonly actor: string, readonly action: string, readonly reason: string }> }} of
 * @returns {ReadonlyArray<Step>}
 */
export const stepsOf = ({ audit = [], history = [] }) =>
  [
    ...history.map(({ at, attempt, error }) => ({ at, what: `attempt ${attempt} failed: ${error}`, tone: "bad" })),
    ...audit.map(({ action, actor, at, reason }) => ({ at, what: action, by: actor, reason }))
  ].toSorted((a, b) => a.at.localeCompare(b.at))
