/**
 * What a person on call asks first, in the order of asking, which a phone shows from top to bottom: is money moving, what needs a person, how has it
 * been lately, what is not at its end, and who does what now.
 */
import { html } from "../html.js"
import { live } from "../live.js"
import { Loading, PageHead } from "../parts.js"
import { useStore } from "../store.js"
import { Consumers } from "./overview/Consumers.js"
import { History } from "./overview/History.js"
import { Lanes } from "./overview/Lanes.js"
import { Needs } from "./overview/Needs.js"
import { Machinery, Paused, Payments, Tasks } from "./overview/States.js"
import { Tiles } from "./overview/Tiles.js"
import { Verdict } from "./overview/Verdict.js"

/** The page. */
export const Page = () => {
  const overview = useStore(live, (now) => now.overview)
  if (overview === undefined)
    return html`<${PageHead} title="Overview" isUnseen /><${Verdict} /><${Loading}
        what="Waiting for the first figures"
      />`
  return html`<${PageHead} title="Overview" isUnseen />
    <${Verdict} />
    <${Needs} overview=${overview} />
    <${Tiles} overview=${overview} />
    <${History} />
    <div class="two">
      <div class="stack">
        <${Payments} overview=${overview} />
        <${Consumers} overview=${overview} />
        <${Tasks} overview=${overview} />
        <${Paused} overview=${overview} />
      </div>
      <div class="stack">
        <${Lanes} overview=${overview} />
        <${Machinery} overview=${overview} />
      </div>
    </div>`
}
