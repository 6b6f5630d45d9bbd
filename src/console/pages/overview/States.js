/**
 * What is paused; tasks by type, payments by state; broker and database.
 *
 * @import { Overview } from "../../types.ts"
 */
import { counted, number } from "../../format.js"
import { html } from "../../html.js"
import { Empty, Section, State, Time } from "../../parts.js"
import { pauseAction } from "../../pauses.js"
import { Table } from "../../table.js"

/** @typedef {{ readonly overview: Overview }} Props */

/** @param {Props} props */
export const Paused = ({ overview: { paused } }) => {
  /** @typedef {Overview["paused"][number]} Pause */
  /** @type {ReadonlyArray<import("../../table.js").Column<Pause>>} */
  const columns = [
    { head: "what", cell: ({ kind, name }) => html`${kind} <strong>${name}</strong>` },
    { head: "since", cell: ({ pausedAt }) => html`<${Time} at=${pausedAt} />` },
    { head: "by", cell: ({ actor }) => actor },
    { head: "why", as: "wide", cell: ({ reason }) => reason }
  ]
  return html`<${Section} title="Paused by an operator">
    ${
      paused.length === 0
        ? html`<${Empty}>Nothing is paused.<//>`
        : html`<${Table}
            caption="What is paused"
            columns=${columns}
            rows=${paused}
            keyOf=${(/** @type {Pause} */ { kind, name }) => `${kind} ${name}`}
            actions=${(/** @type {Pause} */ { kind, name }) => [pauseAction(kind, name, true)]}
          />`
    }
  <//>`
}

const taskStates = /** @type {const} */ (["pending", "processing", "retrying", "dead"])

/** @param {Props} props */
export const Tasks = ({ overview: { paused, tasks } }) => {
  const types = [...new Set(tasks.map(({ type }) => type))].toSorted()
  const countOf = (/** @type {string} */ type, /** @type {string} */ state) =>
    tasks.find((one) => one.type === type && one.state === state)?.count ?? 0
  const isPaused = (/** @type {string} */ type) =>
    paused.some(({ kind, name }) => kind === "task type" && name === type)
  return html`<${Section} title="Tasks" aside=${html`<a href="/console/tasks">All tasks</a>`}>
    ${
      types.length === 0
        ? html`<${Empty}>No task waits or runs.<//>`
        : html`<${Table}
            caption="Tasks by type and state"
            class="pairs"
            columns=${[
              {
                head: "type",
                cell: (/** @type {string} */ type) =>
                  html`<a href=${`/console/tasks?type=${encodeURIComponent(type)}`}>${type}</a>
                    ${isPaused(type) ? html`<${State} of="paused" />` : null}`
              },
              ...taskStates.map((state) => ({
                head: state,
                as: "number",
                cell: (/** @type {string} */ type) => {
                  const count = countOf(type, state)
                  return html`<span class=${count === 0 ? "dim" : state === "dead" ? "bad" : ""}
                    >${number(count)}</span
                  >`
                }
              }))
            ]}
            rows=${types}
            keyOf=${(/** @type {string} */ type) => type}
            actions=${(/** @type {string} */ type) => [pauseAction("task type", type, isPaused(type))]}
          />`
    }
  <//>`
}

/** @param {Props} props */
export const Payments = ({ overview: { mail, outbox, payments } }) => {
  /** @type {ReadonlyArray<readonly [string, string, ReadonlyArray<readonly [string, number]>]>} */
  const lines = [
    [
      "Payments",
      "/console/payments",
      [
        ["charging", payments.charging],
        ["refunding", payments.refunding],
        ["manual", payments.manual]
      ]
    ],
    [
      "Events",
      "/console/dead-letters",
      [
        ["queued", outbox.queued],
        ["retrying", outbox.retrying],
        ["parked", outbox.parked],
        ["dead", outbox.dead]
      ]
    ],
    [
      "Mail",
      "/console/mail",
      [
        ["waiting", mail.waiting],
        ["uncertain", mail.uncertain],
        ["dead", mail.dead]
      ]
    ]
  ]
  return html`<${Section} title="Not at their end">
    <dl class="states">
      ${lines.map(
        ([name, href, counts]) =>
          html`<div key=${name}>
            <dt><a href=${href}>${name}</a></dt>
            ${counts.map(
              ([state, count]) =>
                html`<dd key=${state}>
                  <b>${number(count)}</b
                  >${count === 0 ? html`<span class="pill">${state}</span>` : html`<${State} of=${state} />`}
                </dd>`
            )}
          </div>`
      )}
    </dl>
    ${payments.areMore ? html`<p class="dim">Payments are counted up to a bound, the newest ones.</p>` : null}
  <//>`
}

/** Parts of health that are a fiber each: dozens, of which a person wants to know those that are not well. */
const fiberPrefix = "fiber:"

/** @param {{ readonly health: Overview["health"] }} props */
const Parts = ({ health }) => {
  const all = Object.entries(health).toSorted(([a], [b]) => a.localeCompare(b))
  const shown = all.filter(([name, { status }]) => status !== "ready" || !name.startsWith(fiberPrefix))
  const rest = all.length - shown.length
  return html`${shown.map(([name, { status }]) => html`<li key=${name}>${name} <${State} of=${status} /></li>`)}
  ${rest === 0 ? null : html`<li>${counted(rest, "fiber")} <${State} of="ready" /></li>`}`
}

/** @param {Props} props */
export const Machinery = ({ overview: { broker, database, health } }) =>
  html`<${Section} title="Broker, database, parts">
    <ul class="plain parts">
      <li>
        <b>Broker</b> <span class="dim">${broker.kind}</span>
        <${State} of=${broker.state === "ready" ? "ready" : "lost"} text=${broker.state} />
        ${broker.detail === null ? null : html`<p class="dim">${broker.detail}</p>`}
      </li>
      <li>
        <b>Database</b> <span class="dim">${database.open} of ${database.max} connections</span>
        <${State} of=${database.state === "ready" ? "ready" : "lost"} text=${database.state} />
        <meter min="0" max=${database.max} value=${database.open} aria-label="Connections in use"></meter>
      </li>
      <${Parts} health=${health} />
    </ul>
  <//>`
