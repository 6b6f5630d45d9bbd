/** Break it: make a step of the code or the gateway fail, and see that nothing is lost. */
import { withQuery } from "../api.js"
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { Loaded, PageHead, Section } from "../parts.js"
import { Story } from "../story.js"
import { FaultsSection } from "./breakIt/FaultsSection.js"
import { GatewaySection } from "./breakIt/GatewaySection.js"
import { SumsSection } from "./breakIt/SumsSection.js"

/** What is done here appears in the log within this time. */
const refreshMillis = 2_000

/** As many as a person reads. */
const logged = 20

/** What was armed, cleared and changed, from the audit. */
const Log = () => {
  const faults = useLoad(withQuery("/admin/audit", { subject: "fault point", limit: logged }), {
    everyMillis: refreshMillis
  })
  const gateway = useLoad(withQuery("/admin/audit", { subject: "sandbox gateway", limit: logged }), {
    everyMillis: refreshMillis
  })
  const steps = (/** @type {any} */ { items }) =>
    [...items, ...(gateway.data?.items ?? [])]
      .toSorted((a, b) => b.at.localeCompare(a.at))
      .slice(0, logged)
      .map(({ action, actor, after, at, reason, subject, subjectId }) => ({
        at,
        what: `${action} ${subject} ${subjectId}: ${Object.entries(after ?? {})
          .map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`)
          .join(", ")}`,
        by: actor,
        reason
      }))
  return html`<${Section} title="What was done">
    <${Loaded} load=${faults} what="Reading the audit"
      >${(/** @type {any} */ page) => html`<${Story} steps=${steps(page)} />`}<//
    >
  <//>`
}

export const Page = () =>
  html`<${PageHead} title="Break it" />
    <p>
      Make something fail, and watch what the service makes of it. This page ends no process: for that run
      <code>npm run demo</code>, or <code>kill -9</code> one in a terminal. The page finds the service again by itself.
    </p>
    <${SumsSection} />
    <${GatewaySection} />
    <${FaultsSection} />
    <${Log} />`
