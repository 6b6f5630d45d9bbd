/** The console begins here: it finds out who acts, follows the service, and shows the page of the address. */
import { render } from "preact"
import { useEffect, useState } from "preact/hooks"
import { session } from "./api.js"
import { adopt } from "./demo.js"
import { html } from "./html.js"
import { Help, useShortcuts } from "./keys.js"
import { follow } from "./live.js"
import { pageOf } from "./pages.js"
import { Failure, Loading, Notices, PageHead } from "./parts.js"
import { useLinks, useSegments } from "./router.js"
import { SignIn, Starting } from "./session.js"
import { Header } from "./shell.js"
import { useStore } from "./store.js"

/** @typedef {{ readonly component: import("preact").ComponentType<any> } | { readonly error: unknown } | undefined} Loaded */

/** @param {{ readonly segments: ReadonlyArray<string> }} props */
const Current = ({ segments }) => {
  const found = pageOf(segments)
  const path = found?.page.path
  const [loaded, setLoaded] = useState(
    /** @type {{ path: string | undefined, of: Loaded }} */ ({ path, of: undefined })
  )
  // A page and its detail are different components: each is loaded by its own rest of the path.
  const shape = `${path} ${found?.rest.length}`
  useEffect(() => {
    scrollTo(0, 0)
    if (found === undefined) return undefined
    let isCurrent = true
    found.page.load(found.rest).then(
      ({ Page }) => isCurrent && setLoaded({ path: shape, of: { component: Page } }),
      (error) => isCurrent && setLoaded({ path: shape, of: { error } })
    )
    return () => {
      isCurrent = false
    }
  }, [shape])
  if (found === undefined)
    return html`<${PageHead} title="No such page" />
      <p>There is no page at this address. <a href="/console">To the overview</a></p>`
  const of = loaded.path === shape ? loaded.of : undefined
  if (of === undefined) return html`<${Loading} what="Opening the page" />`
  if ("error" in of) return html`<${Failure} error=${of.error} retry=${() => location.reload()} />`
  return html`<${of.component} key=${found.rest.join("/")} segments=${found.rest} />`
}

const Signed = () => {
  const segments = useSegments()
  useLinks()
  useShortcuts()
  useEffect(follow, [])
  return html`<${Header} current=${pageOf(segments)?.page.path} />
    <main id="main" tabindex="-1"><${Current} segments=${segments} /></main>
    <${Notices} />
    <${Help} />`
}

const Console = () => {
  const who = useStore(session, (now) => now)
  if (who === undefined) return html`<${Starting} />`
  return who === null ? html`<${SignIn} />` : html`<${Signed} />`
}

adopt()
const root = document.querySelector("#console")
if (root !== null) render(html`<${Console} />`, root)
