/** What a person on call asks first: is money moving, what needs a person, who does what now. */
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
    <div class="two">
      <${Lanes} overview=${overview} />
      <div class="stack"><${Consumers} overview=${overview} /><${Paused} overview=${overview} /></div>
    </div>
    <${History} />
    <div class="two">
      <${Tasks} overview=${overview} />
      <div class="stack">
        <${Payments} overview=${overview} />
        <${Machinery} overview=${overview} />
      </div>
    </div>`
}
