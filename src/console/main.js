/** The console begins here: it finds out who acts, follows the service, and shows the page of the address. */
import { render } from "preact"
import { useEffect, useState } from "preact/hooks"
import { get, Problem, session } from "./api.js"
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

/** A service that comes back is found within this time. */
const retryMillis = 3_000

const reloadedKey = "paid-once-reloaded"

/** @returns {Promise<boolean>} */
const isThere = () =>
  get("/health/live").then(
    () => true,
    (error) => error instanceof Problem && error.status !== 0 && error.status < 500
  )

/**
 * Loads a page's module, and again until it comes. Some browsers keep a failed import for as long as the document lives: where the service
 * answers and the import fails all the same, the document is loaded anew, once.
 *
 * @template T
 * @param {() => Promise<T>} load
 * @param {(problem: Error) => void} onProblem
 * @param {AbortSignal} signal
 * @returns {Promise<T | undefined>}
 */
const loadUntilItComes = async (load, onProblem, signal) => {
  let hasFailed = false
  while (!signal.aborted) {
    try {
      const module = await load()
      sessionStorage.removeItem(reloadedKey)
      return module
    } catch (error) {
      if (await isThere()) {
        if (hasFailed && sessionStorage.getItem(reloadedKey) === null && !signal.aborted) {
          sessionStorage.setItem(reloadedKey, "yes")
          location.reload()
          return undefined
        }
        onProblem(new Error(`This page can't be opened: ${error instanceof Error ? error.message : String(error)}`))
      } else onProblem(new Error("The service does not answer. The page opens by itself when the service is back."))
      hasFailed = true
      await new Promise((resume) => setTimeout(resume, retryMillis))
    }
  }
  return undefined
}

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
    const current = new AbortController()
    const show = (/** @type {Loaded} */ of) => {
      if (!current.signal.aborted) setLoaded({ path: shape, of })
    }
    void loadUntilItComes(
      () => found.page.load(found.rest),
      (error) => show({ error }),
      current.signal
    ).then((module) => show(module && { component: module.Page }))
    return () => current.abort()
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
