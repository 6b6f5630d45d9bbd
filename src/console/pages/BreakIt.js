/** Break it: make a step of the code or the gateway fail, and see that nothing is lost. */
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { PageHead } from "../parts.js"
import { DrillsSection } from "./breakIt/DrillsSection.js"
import { FaultsSection } from "./breakIt/FaultsSection.js"
import { GatewaySection } from "./breakIt/GatewaySection.js"
import { ProcessesSection, useDemo } from "./breakIt/ProcessesSection.js"
import { StorySection } from "./breakIt/StorySection.js"
import { SumsSection } from "./breakIt/SumsSection.js"

/** A person who breaks something watches the figures move, and what is armed strike. */
const refreshMillis = 2_000

const sumsSeconds = 3_600

export const Page = () => {
  const sums = useLoad(`/admin/sums?sinceSeconds=${sumsSeconds}`, { everyMillis: refreshMillis })
  const faults = useLoad("/admin/faults", { everyMillis: refreshMillis })
  const demo = useDemo()
  return html`<${PageHead} title="Break it" />
    <p>
      Make something fail, and watch what the service makes of it.
      ${
        demo.state === undefined
          ? html`This page ends no process: for that run <code>npm run demo -- --stay</code>, or
              <code>kill -9</code> one in a terminal.`
          : null
      }
      The page finds the service again by itself.
    </p>
    <${SumsSection} load=${sums} />
    <${DrillsSection} demo=${demo} />
    <${ProcessesSection} demo=${demo} />
    <${GatewaySection} />
    <${FaultsSection} load=${faults} />
    <${StorySection} sums=${sums} faults=${faults} others=${demo.state?.events} />`
}
