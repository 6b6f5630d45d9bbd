/** Drills: each breaks something, shows what comes of it, mends it and adds up. A demo that stays runs them; any other service is drilled in a shell. */
import { html } from "../../html.js"
import { Section, State } from "../../parts.js"
import { Table } from "../../table.js"

/** @param {{ readonly demo: ReturnType<typeof import("./ProcessesSection.js").useDemo> }} props */
export const DrillsSection = ({ demo: { act, state } }) => {
  if (state === undefined) {
    return html`<${Section} title="Drills">
      <p>
        A drill breaks something, shows what comes of it, mends it, and adds up. With a service that was started with
        <code>FAULTS=on</code> run <code>npm run -s paid-once -- drill</code> in a shell: it lists them.
        <code>npm run demo -- --stay</code> runs them from this page. <code>drill --mend</code> mends what a killed
        drill has left.
      </p>
    <//>`
  }
  const isBusy = state.drills.some((/** @type {any} */ { isRunning }) => isRunning)
  return html`<${Section} title="Drills">
    <${Table}
      caption="Drills"
      rows=${state.drills}
      keyOf=${(/** @type {any} */ { name }) => name}
      columns=${[
        { head: "Drill", cell: (/** @type {any} */ { name }) => html`<code>${name}</code>` },
        {
          head: "What it shows",
          as: /** @type {const} */ ("wide"),
          cell: (/** @type {any} */ { shows }) => shows
        },
        {
          head: "Do",
          cell: (/** @type {any} */ { isRunning, name }) =>
            isRunning
              ? html`<${State} of="waiting" text="running" />`
              : html`<button
                  type="button"
                  disabled=${isBusy}
                  aria-label=${`Run the drill ${name}`}
                  onClick=${() => act(`/drills/${name}`)}
                >
                  Run
                </button>`
        }
      ]}
    />
    <p class="dim">The story at the end of this page tells what a drill does and sees.</p>
  <//>`
}
