/** What is wrong with the running system, and what mends it: the checks of `paid-once doctor`, run when the page is opened. */
import { counted } from "../format.js"
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { Empty, Loaded, PageHead, Section } from "../parts.js"
import { Table } from "../table.js"

const columns = [
  {
    head: "outcome",
    cell: (/** @type {any} */ { outcome }) =>
      html`<strong class=${outcome === "finding" ? "bad" : outcome === "ok" ? "" : "dim"}>${outcome}</strong>`
  },
  { head: "part", cell: (/** @type {any} */ { group }) => group },
  { head: "check", cell: (/** @type {any} */ { name }) => html`<code>${name}</code>` },
  {
    head: "what it saw",
    as: /** @type {const} */ ("wide"),
    cell: (/** @type {any} */ { findings, outcome, told }) =>
      outcome === "finding" ? counted(findings.length, "finding") : html`<span class="error">${told}</span>`
  }
]

/** @param {{ readonly finding: any }} props */
const Finding = ({ finding: { command, fix, problem } }) =>
  html`<p class="error">${problem}.<br />${fix}.${command === null ? null : html`<br /><code>${command}</code>`}</p>`

/** @param {{ readonly report: any }} props */
const Report = ({ report: { checks, findings, notChecked } }) => html`
  <${Section} title="Findings">
    ${
      findings === 0
        ? html`<${Empty}>Nothing was found.<//>`
        : checks.flatMap((/** @type {any} */ { findings, name }) =>
            findings.map(
              (/** @type {any} */ finding, /** @type {number} */ index) =>
                html`<${Finding} key=${`${name} ${index}`} finding=${finding} />`
            )
          )
    }
  <//>
  <${Section} title=${`${counted(checks.length, "check")}, ${counted(findings, "finding")}, ${notChecked} not checked`}>
    <${Table} caption="Checks" columns=${columns} rows=${checks} keyOf=${(/** @type {any} */ { name }) => name} />
  <//>
`

/** What stands still is watched for longer than a healthy process waits after an outage: half a minute, of lanes and of consumers. */
const patienceMillis = 120_000

export const Page = () => {
  const load = useLoad("/admin/doctor", { patienceMillis })
  return html`<${PageHead} title="Doctor"><button type="button" onClick=${() => load.reload()}>Look again</button><//>
    <p>
      Each part is looked at now, by a session that can't write. The metrics are those of the process that answers. What
      could not be looked at says so.
    </p>
    <${Loaded} load=${load} what="Looking at each part">
      ${(/** @type {any} */ report) => html`<${Report} report=${report} />`}
    <//>`
}
