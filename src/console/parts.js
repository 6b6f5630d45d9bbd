/**
 * The small parts that pages are made of. Each shows what it is given as text.
 *
 * @import { Children } from "./html.js"
 */
import { useEffect, useId, useRef, useState } from "preact/hooks"
import * as format from "./format.js"
import { html } from "./html.js"
import { makeStore, useStore } from "./store.js"

/** One colour for a state, everywhere. A word that is not listed is neutral. */
const tones = {
  ok: [
    "ready",
    "running",
    "live",
    "applied",
    "published",
    "completed",
    "captured",
    "paid",
    "delivered",
    "sent",
    "done",
    "owned",
    "available"
  ],
  wait: [
    "degraded",
    "queued",
    "retrying",
    "parked",
    "pending",
    "charging",
    "paying",
    "refunding",
    "processing",
    "failed",
    "uncertain",
    "paused",
    "gap",
    "waiting",
    "connecting",
    "stale",
    "starting",
    "rebuilding"
  ],
  bad: ["dead", "unready", "manual", "unavailable", "stuck", "refused", "lost"]
}

/** @type {ReadonlyMap<string, string>} */
const toneOf = new Map(Object.entries(tones).flatMap(([tone, words]) => words.map((word) => [word, tone])))

/**
 * A state: its word in its colour. `text` may say more than the word.
 *
 * @param {{ readonly of: string, readonly text?: string, readonly title?: string }} props
 */
export const State = ({ of, text = of, title }) =>
  html`<span class=${`pill ${toneOf.get(of.toLowerCase()) ?? ""}`} title=${title}>${text}</span>`

/**
 * A time: local, with UTC on hover.
 *
 * @param {{ readonly at: string | null | undefined, readonly ago?: boolean, readonly exact?: boolean }} props
 */
export const Time = ({ at, ago = false, exact = false }) => {
  if (at === null || at === undefined) return html`<span class="dim">–</span>`
  const date = new Date(at)
  if (Number.isNaN(date.getTime())) return html`<span>${at}</span>`
  return html`<time datetime=${date.toISOString()} title=${format.utcTime(date)}
    >${ago ? `${format.duration((Date.now() - date.getTime()) / 1_000)} ago` : exact ? format.exactTime(date) : format.localTime(date)}</time
  >`
}

const isoTime = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/

/**
 * A sentence of the service: it begins with a capital, unless it goes on with one, and its times are local.
 *
 * @param {{ readonly text: string, readonly goesOn?: boolean }} props
 */
export const Sentence = ({ goesOn = false, text }) =>
  html`${`${goesOn ? text.charAt(0) : text.charAt(0).toUpperCase()}${text.slice(1)}`
    .split(isoTime)
    .map((part, i) => (i % 2 === 1 ? html`<${Time} key=${i} at=${part} />` : part))}`

/** @param {{ readonly minor: number, readonly currency: string }} props */
export const Money = ({ currency, minor }) => html`<span class="figure">${format.money(minor, currency)}</span>`

/**
 * An id, shortened, with the whole one on hover and on the clipboard.
 *
 * @param {{ readonly id: string, readonly href?: string, readonly whole?: boolean }} props
 */
export const Id = ({ href, id, whole = false }) => {
  const text = html`<code title=${id}>${whole ? id : format.shortId(id)}</code>`
  return html`<span class="id"
    >${href === undefined ? text : html`<a href=${href}>${text}</a>`}<${Copy} text=${id} what="id"
  /></span>`
}

/** @param {{ readonly text: string, readonly what: string }} props */
export const Copy = ({ text, what }) => {
  const [copied, setCopied] = useState(false)
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text)
      setCopied(true)
      notify(`Copied: ${text.length > 60 ? `${text.slice(0, 60)}…` : text}`)
      setTimeout(() => setCopied(false), 1_500)
    } catch {
      // Without TLS and away from this machine a page may not write there.
      notify("The browser does not let this page copy. Select the text instead.")
    }
  }
  return html`<button
    type="button"
    class="copy"
    onClick=${copy}
    aria-label=${`Copy the ${what}`}
    title=${`Copy the ${what}`}
  >
    <svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true">
      <path d=${copied ? "M2 6.5l3 3 5-6" : "M4 1.5h6.5V8M1.5 4h6.5v6.5H1.5z"} />
    </svg>
  </button>`
}

/**
 * A part of the page with its title.
 *
 * @param {{ readonly title: string, readonly aside?: Children, readonly children?: Children, readonly class?: string, readonly id?: string }} props
 */
export const Section = ({ aside, children, class: name = "", id, title }) => {
  const own = useId()
  return html`<section class=${`card ${name}`} id=${id} aria-labelledby=${own}>
    <div class="section-head">
      <h2 id=${own}>${title}</h2>
      ${aside}
    </div>
    ${children}
  </section>`
}

/** @param {{ readonly children?: Children }} props */
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`

/** @param {{ readonly what?: string }} props */
export const Loading = ({ what = "Loading" }) => html`<p class="empty" role="status">${what} …</p>`

/**
 * A failure in words, with a way out.
 *
 * @param {{ readonly error: unknown, readonly retry?: () => void }} props
 */
export const Failure = ({ error, retry }) =>
  html`<div class="failure" role="alert">
    <p>${error instanceof Error ? error.message : String(error)}</p>
    ${retry === undefined ? null : html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`

/** Says that what is shown is old, and why. */
/** @param {{ readonly error: unknown, readonly at: number }} props */
export const Stale = ({ at, error }) =>
  html`<p class="stale" role="status">
    Shown as it was ${format.duration((performance.now() - at) / 1_000)} ago.
    ${error instanceof Error ? error.message : ""} Trying again.
  </p>`

/**
 * What a load has brought: its data, and where there is none why not.
 *
 * @template T
 * @param {{ readonly load: import("./load.js").Load<T>, readonly children: (data: T) => Children, readonly what?: string }} props
 */
export const Loaded = ({ children, load, what }) => {
  // The template has blanks around the function.
  const show = [children].flat().find((child) => typeof child === "function")
  if (load.data === undefined || show === undefined)
    return load.error === undefined
      ? html`<${Loading} what=${what} />`
      : html`<${Failure} error=${load.error} retry=${load.reload} />`
  return html`${load.error === undefined ? null : html`<${Stale} error=${load.error} at=${load.at} />`}${show(load.data)}`
}

/** @param {{ readonly pairs: ReadonlyArray<readonly [string, Children]> }} props */
export const Facts = ({ pairs }) =>
  html`<dl class="facts">
    ${pairs.map(
      ([term, value]) =>
        html`<div key=${term}>
          <dt>${term}</dt>
          <dd>${value}</dd>
        </div>`
    )}
  </dl>`

/** @param {{ readonly value: unknown, readonly label: string }} props */
export const Json = ({ label, value }) => {
  const text = JSON.stringify(value, null, 2) ?? "undefined"
  return html`<div class="json">
    <${Copy} text=${text} what=${label} />
    <pre tabindex="0" role="region" aria-label=${`${label} as JSON`}>${text}</pre>
  </div>`
}

/** @type {import("./store.js").Store<ReadonlyArray<{ readonly id: number, readonly text: string, readonly tone: string }>>} */
const notices = makeStore(/** @type {ReadonlyArray<{ id: number, text: string, tone: string }>} */ ([]))
let lastNotice = 0

/**
 * Says what has happened, at the bottom of the page and to a screen reader.
 *
 * @param {string} text
 * @param {"ok" | "bad" | ""} [tone]
 */
export const notify = (text, tone = "") => {
  lastNotice += 1
  const id = lastNotice
  // Three fit on a phone.
  notices.update((now) => [...now, { id, text, tone }].slice(-3))
  setTimeout(() => notices.update((now) => now.filter((notice) => notice.id !== id)), tone === "bad" ? 15_000 : 8_000)
}

/** Where {@link notify} speaks. */
export const Notices = () => {
  const shown = useStore(notices, (now) => now)
  return html`<div class="notices" role="status" aria-live="polite">
    ${shown.map(({ id, text, tone }) => html`<p key=${id} class=${`notice is-${tone}`}>${text}</p>`)}
  </div>`
}

/**
 * The title of a page. It takes the focus when the page opens, so that a screen reader begins there. A page whose first sentence is a title
 * by itself hides it.
 *
 * @param {{ readonly title: string, readonly children?: Children, readonly isUnseen?: boolean }} props
 */
export const PageHead = ({ children, isUnseen = false, title }) => {
  const heading = useRef(/** @type {HTMLHeadingElement | null} */ (null))
  useEffect(() => {
    document.title = `${title} · Paid Once`
  }, [title])
  useEffect(() => heading.current?.focus({ preventScroll: true }), [])
  return html`<div class=${isUnseen ? "unseen" : "page-head"}>
    <h1 tabindex="-1" ref=${heading}>${title}</h1>
    ${children}
  </div>`
}
