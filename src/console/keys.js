/** Keyboard shortcuts, and the dialog that tells them. They can be switched off, since single letters disturb those who dictate. */
import { useEffect, useRef, useState } from "preact/hooks"
import { html } from "./html.js"
import { pages } from "./pages.js"
import { go } from "./router.js"
import { makeStore, useStore } from "./store.js"
import { nextTheme } from "./theme.js"

const storageKey = "paid-once-shortcuts"
const isOn = makeStore(localStorage.getItem(storageKey) !== "off")
isOn.subscribe(() => localStorage.setItem(storageKey, isOn.get() ? "on" : "off"))

/** Whether the dialog is open. */
export const helpShown = makeStore(false)

/** A second key within this time belongs to the first one. */
const sequenceMillis = 1_200

/** @param {EventTarget | null} target */
const isTyping = (target) =>
  target instanceof Element && target.closest("input, select, textarea, [contenteditable]") !== null

const focusSearch = () => {
  const field = document.querySelector("main [role=search] input")
  if (field instanceof HTMLElement) field.focus()
}

/** Listens for the shortcuts. */
export const useShortcuts = () => {
  const startedAt = useRef(0)
  useEffect(() => {
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      if (
        event.metaKey ||
        event.ctrlKey ||
        event.altKey ||
        isTyping(event.target) ||
        document.querySelector("dialog[open]") !== null
      )
        return
      // The way to the switch stays open.
      if (event.key === "?") return helpShown.set(true)
      if (!isOn.get()) return
      const isSecond = event.timeStamp - startedAt.current < sequenceMillis
      startedAt.current = 0
      const page = isSecond ? pages.find(({ shortcut }) => shortcut === event.key) : undefined
      if (page !== undefined) go(page.path)
      else if (event.key === "g") startedAt.current = event.timeStamp
      else if (event.key === "t") nextTheme()
      else if (event.key === "/") focusSearch()
      else return
      event.preventDefault()
    }
    document.addEventListener("keydown", onKey)
    return () => document.removeEventListener("keydown", onKey)
  }, [])
}

/** The list of all shortcuts. */
export const Help = () => {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null))
  const isShown = useStore(helpShown, (now) => now)
  const on = useStore(isOn, (now) => now)
  const [opener, setOpener] = useState(/** @type {Element | null} */ (null))
  useEffect(() => {
    if (isShown) {
      setOpener(document.activeElement)
      dialog.current?.showModal()
    } else if (opener instanceof HTMLElement) opener.focus()
  }, [isShown])
  return html`<dialog ref=${dialog} class="help" aria-labelledby="help-title" onClose=${() => helpShown.set(false)}>
    <h2 id="help-title">Keyboard</h2>
    <dl class="keys">
      ${pages
        .filter(({ shortcut }) => shortcut !== undefined)
        .map(
          ({ path, shortcut, title }) =>
            html`<div key=${path}>
              <dt><kbd>g</kbd> <kbd>${shortcut}</kbd></dt>
              <dd>${title}</dd>
            </div>`
        )}
      <div>
        <dt><kbd>/</kbd></dt>
        <dd>Search on this page</dd>
      </div>
      <div>
        <dt><kbd>t</kbd></dt>
        <dd>Light, dark, or as the system has it</dd>
      </div>
      <div>
        <dt><kbd>?</kbd></dt>
        <dd>This list</dd>
      </div>
      <div>
        <dt><kbd>Esc</kbd></dt>
        <dd>Close a form without doing anything</dd>
      </div>
      <div>
        <dt><kbd>←</kbd> <kbd>→</kbd> <kbd>↑</kbd> <kbd>↓</kbd></dt>
        <dd>From lane to lane on the map</dd>
      </div>
    </dl>
    <label class="check"
      ><input type="checkbox" checked=${on} onChange=${() => isOn.set(!on)} /> Shortcuts of single letters</label
    >
    <div class="row"><button type="button" onClick=${() => dialog.current?.close()}>Close</button></div>
  </dialog>`
}
