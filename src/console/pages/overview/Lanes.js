/**
 * The lanes as a map for each topic: who owns each, what it sends, what is paused or held in it. The same as a table for those who see no map.
 *
 * @import { Lane, Overview } from "../../types.ts"
 */
import { useRef, useState } from "preact/hooks"
import { Actions } from "../../act.js"
import { counted, duration, number } from "../../format.js"
import { html } from "../../html.js"
import { Empty, Section, State } from "../../parts.js"
import { pauseAction } from "../../pauses.js"
import { Table } from "../../table.js"

/** Owners that have a colour of their own; beyond them the letter alone tells. */
const colours = 6

/** @param {number} index */
const letterOf = (index) => String.fromCodePoint(65 + (index % 26))

/** @param {Lane} lane */
const stateOf = ({ dead, isPaused, owner, parked, ready }) =>
  dead > 0
    ? "dead"
    : parked > 0
      ? "parked"
      : isPaused
        ? "paused"
        : owner === null
          ? "unowned"
          : ready > 0
            ? "sending"
            : "idle"

/** What tells a state apart without its colour. */
const signs = { dead: "!", parked: "‖", paused: "=", unowned: "?", sending: "▸", idle: "" }

/** A pause keeps its events from being sent: it is not idle. @param {Lane} lane */
const waits = (lane) => stateOf(lane) === "paused" && lane.ready > 0

/** @param {Lane} lane */
const described = (lane) => {
  const { dead, lane: number, oldestReadySeconds, owner, parked, partition, ready } = lane
  return [
    `Lane ${number}`,
    owner === null ? "nobody owns it" : `owned by ${owner}`,
    ...(partition === null ? [] : [`partition ${partition}`]),
    ready === 0
      ? "nothing waits"
      : `${ready} to send${oldestReadySeconds === null ? "" : `, the oldest for ${duration(oldestReadySeconds)}`}`,
    ...(parked > 0 ? [`${parked} parked`] : []),
    ...(dead > 0 ? [`${dead} dead`] : []),
    ...(lane.isPaused ? ["paused"] : [])
  ].join(", ")
}

/** @param {{ readonly topic: string, readonly lanes: ReadonlyArray<Lane>, readonly owners: ReadonlyArray<string> }} props */
const Map = ({ lanes, owners, topic }) => {
  const [chosen, setChosen] = useState(0)
  const map = useRef(/** @type {HTMLDivElement | null} */ (null))
  const move = (/** @type {KeyboardEvent} */ event) => {
    const perRow = getComputedStyle(/** @type {HTMLDivElement} */ (map.current)).gridTemplateColumns.split(" ").length
    const steps = {
      ArrowRight: 1,
      ArrowLeft: -1,
      ArrowDown: perRow,
      ArrowUp: -perRow,
      Home: -lanes.length,
      End: lanes.length
    }
    const step = event.key in steps ? steps[/** @type {keyof typeof steps} */ (event.key)] : undefined
    if (step === undefined) return
    event.preventDefault()
    const next = Math.min(lanes.length - 1, Math.max(0, chosen + step))
    setChosen(next)
    const cell = map.current?.children[next]
    if (cell instanceof HTMLElement) cell.focus()
  }
  const lane = lanes[chosen]
  return html`<div
      class="lanes"
      role="group"
      aria-label=${`Lanes of ${topic}: arrow keys go from lane to lane`}
      ref=${map}
      onKeyDown=${move}
    >
      ${lanes.map((one, i) => {
        const state = stateOf(one)
        const owner = one.owner === null ? -1 : owners.indexOf(one.owner)
        return html`<button
          key=${one.lane}
          type="button"
          class=${`lane ${state} ${owner < 0 ? "" : `owner-${owner % colours}`}`}
          tabindex=${i === chosen ? 0 : -1}
          aria-pressed=${i === chosen}
          title=${described(one)}
          onClick=${() => setChosen(i)}
        >
          <span class="unseen">${described(one)}</span><span aria-hidden="true">${one.lane}</span
          ><i aria-hidden="true"
            >${owner < 0 ? "" : letterOf(owner)}${signs[state]}${waits(one) ? signs.sending : ""}</i
          >
        </button>`
      })}
    </div>
    <p class="lane-told" aria-hidden="true">${lane === undefined ? "" : `${described(lane)}.`}</p>`
}

/** @type {ReadonlyArray<import("../../table.js").Column<Lane>>} */
const columns = [
  { head: "lane", as: "number", cell: ({ lane }) => String(lane) },
  { head: "owner", cell: ({ owner }) => owner ?? html`<span class="dim">nobody</span>` },
  { head: "partition", as: "number", cell: ({ partition }) => (partition === null ? "–" : String(partition)) },
  { head: "to send", as: "number", cell: ({ ready }) => number(ready) },
  {
    head: "oldest",
    as: "number",
    cell: ({ oldestReadySeconds }) => (oldestReadySeconds === null ? "–" : duration(oldestReadySeconds))
  },
  { head: "parked", as: "number", cell: ({ parked }) => number(parked) },
  { head: "dead", as: "number", cell: ({ dead }) => number(dead) },
  {
    head: "state",
    cell: (lane) => html`<${State} of=${stateOf(lane)} text=${waits(lane) ? "paused, events wait" : stateOf(lane)} />`
  }
]

/** @param {{ readonly topic: string, readonly lanes: ReadonlyArray<Lane> }} props */
const Topic = ({ lanes, topic }) => {
  const [isTable, setTable] = useState(false)
  const owners = [...new Set(lanes.flatMap(({ owner }) => (owner === null ? [] : [owner])))].toSorted()
  const isPaused = lanes.some((lane) => lane.isPaused)
  const count = (/** @type {(lane: Lane) => boolean} */ test) => lanes.filter(test).length
  return html`<div class="topic">
    <div class="row">
      <h3>Topic ${topic}</h3>
      ${isPaused ? html`<${State} of="paused" />` : null}
      <span class="dim"
        >${counted(
          count(({ owner }) => owner !== null),
          "lane"
        )}
        owned</span
      >
      <span class="spacer"></span>
      <button type="button" aria-pressed=${isTable} onClick=${() => setTable(!isTable)}>As a table</button>
    </div>
    ${
      isTable
        ? html`<${Table}
            caption=${`Lanes of ${topic}`}
            columns=${columns}
            rows=${lanes}
            keyOf=${(/** @type {Lane} */ { lane }) => String(lane)}
          />`
        : html`<${Map} topic=${topic} lanes=${lanes} owners=${owners} />`
    }
    <ul class="legend plain">
      ${owners.map(
        (owner, i) =>
          html`<li key=${owner}>
            <i class=${`lane owner-${i % colours}`}>${letterOf(i)}</i>${owner}, ${count((lane) => lane.owner === owner)}
          </li>`
      )}
      <li><i class="lane sending">▸</i>has events to send</li>
      ${
        isPaused
          ? html`<li><i class="lane paused">=</i>paused</li>
              <li><i class="lane paused">=▸</i>paused, and events wait</li>`
          : null
      }
      <li><i class="lane parked">‖</i>an order is held</li>
      <li><i class="lane dead">!</i>an order waits for a decision</li>
      ${count(({ owner }) => owner === null) > 0 ? html`<li><i class="lane unowned">?</i>nobody owns it</li>` : null}
    </ul>
    <${Actions}
      actions=${[pauseAction("topic", topic, isPaused, { label: `${isPaused ? "Resume" : "Pause"} ${topic}` })]}
    />
  </div>`
}

/** @param {{ readonly overview: Overview }} props */
export const Lanes = ({ overview: { lanes } }) => {
  const topics = [...new Set(lanes.map(({ topic }) => topic))].toSorted()
  return html`<${Section} title="Lanes: who sends what">
    ${
      topics.length === 0
        ? html`<${Empty}>No topic has been used yet.<//>`
        : topics.map(
            (topic) =>
              html`<${Topic} key=${topic} topic=${topic} lanes=${lanes.filter((lane) => lane.topic === topic)} />`
          )
    }
  <//>`
}
