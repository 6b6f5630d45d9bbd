/**
 * What stands around every page: the menu, the state of the service, whether what is shown is live, and who acts.
 *
 * @import { Overview } from "./types.ts"
 */
import { useEffect, useState } from "preact/hooks"
import { operatorName, session } from "./api.js"
import { Count, decisionsOf, decisionsOn, isOld } from "./decisions.js"
import { duration, number } from "./format.js"
import { html } from "./html.js"
import { helpShown } from "./keys.js"
import { live } from "./live.js"
import { pages } from "./pages.js"
import { notify, State } from "./parts.js"
import { signOut } from "./session.js"
import { useStore } from "./store.js"
import { nextTheme, theme } from "./theme.js"
import { stopLoad, traffic } from "./traffic.js"

/** Draws again every second, for what ages. */
const useSeconds = () => {
  const [, draw] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => draw((n) => n + 1), 1_000)
    return () => clearInterval(timer)
  }, [])
}

/** Whether what is shown is of now. The age is for the eye; a screen reader hears changes alone. */
const LivePill = () => {
  useSeconds()
  const { connection, heardAt } = live.get()
  const age = duration((performance.now() - heardAt) / 1_000)
  const text =
    connection === "live" ? `live · ${age} ago` : heardAt === 0 ? "connecting …" : `no answer for ${age}, trying again`
  const said = useStore(live, (now) => now.connection)
  return html`<span class="live"><${State} of=${connection} text=${text} /></span>
    <span class="unseen" role="status"
      >${said === "live" ? "The figures are live." : said === "stale" ? "The service does not answer." : ""}</span
    >`
}

/** @param {{ readonly current: string | undefined, readonly isOpen: boolean }} props */
const Menu = ({ current, isOpen }) => {
  const groups = [...new Set(pages.map(({ group }) => group))]
  return html`<nav id="menu" class=${isOpen ? "menu open" : "menu"} aria-label="Pages">
    ${groups.map(
      (group) =>
        html`<div key=${group} role="group" aria-label=${group}>
          <p aria-hidden="true">${group}</p>
          ${pages
            .filter((page) => page.group === group)
            .map(
              ({ path, title }) =>
                html`<a key=${path} href=${path} aria-current=${path === current ? "page" : undefined}
                  >${title}<${Count}
                    of=${(/** @type {Overview | undefined} */ overview) => decisionsOn(overview, path)}
                /></a>`
            )}
        </div>`
    )}
  </nav>`
}

const NeedsPerson = () => {
  const count = useStore(live, ({ overview }) => decisionsOf(overview))
  const isKnown = useStore(live, (now) => now.overview !== undefined && !isOld(now))
  if (!isKnown) return html`<a class="pill wait" href="/console#needs">decisions not known</a>`
  return html`<a class=${`pill ${count === 0 ? "" : "bad"}`} href="/console#needs"
    >${count === 0 ? "nothing to decide" : `${number(count)} to decide`}</a
  >`
}

/** Load goes on from page to page: it is in sight everywhere, with its end. */
const LoadPill = () => {
  const perSecond = useStore(traffic, (now) => now.perSecond)
  if (perSecond === 0) return null
  return html`<span class="pill wait"
    >load ${perSecond} / s <button type="button" class="link" onClick=${() => stopLoad()}>stop</button></span
  >`
}

/** Who acts, and how the page looks. */
const Settings = () => {
  const actor = useStore(session, (now) => now?.actor ?? "")
  const canWrite = useStore(session, (now) => now?.canWrite === true)
  const name = useStore(operatorName, (now) => now)
  const look = useStore(theme, (now) => now)
  const change = (/** @type {Event} */ event) => {
    // The API takes printable characters, of any alphabet; the field bounds their number.
    const { value } = /** @type {HTMLInputElement} */ (event.currentTarget)
    operatorName.set(value.replaceAll(/[\p{C}\p{Zl}\p{Zp}]/gu, "").trim())
  }
  return html`<details class="who">
    <summary><span class="pill">${canWrite ? "operator" : "viewer"}: ${name === "" ? actor : name}</span></summary>
    <div class="card stack">
      <div class="field">
        <label for="operator-name">Your name, for the audit</label>
        <input id="operator-name" defaultValue=${name} maxlength="64" autocomplete="nickname" onChange=${change} />
      </div>
      <p class="dim">Signed in as ${actor}. ${canWrite ? "" : "This token may only read."}</p>
      <div class="row">
        <button type="button" onClick=${nextTheme}>Theme: ${look}</button>
        <button type="button" onClick=${() => helpShown.set(true)}>Keyboard</button>
        <button type="button" onClick=${() => void signOut().catch((error) => notify(error.message, "bad"))}>
          Sign out
        </button>
      </div>
    </div>
  </details>`
}

/** @param {{ readonly current: string | undefined }} props */
export const Header = ({ current }) => {
  const [isOpen, setOpen] = useState(false)
  const status = useStore(live, ({ connection, overview, trouble }) =>
    connection === "stale" ? "not known" : (trouble ?? overview)?.verdict.status
  )
  // On a phone the menu covers the page: a new page closes it.
  useEffect(() => setOpen(false), [current])
  return html`<a class="skip" href="#main">To the page</a>
    <header>
      <button
        type="button"
        class="menu-button"
        aria-expanded=${isOpen}
        aria-controls="menu"
        onClick=${() => setOpen(!isOpen)}
      >
        Menu
      </button>
      <a class="brand" href="/console">Paid Once</a>
      ${status === undefined ? null : html`<${State} of=${status === "not known" ? "stale" : status} text=${status === "not known" ? "state not known" : status} />`}
      <${NeedsPerson} />
      <${LoadPill} />
      <span class="spacer"></span>
      <${LivePill} />
      <${Settings} />
    </header>
    <${Menu} current=${current} isOpen=${isOpen} />`
}
