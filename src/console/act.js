/**
 * Actions: a button that opens a form in place. The form says what will happen before it happens, asks for a reason, does it once however
 * often it is clicked, and then says what has happened.
 *
 * @import { Children } from "./html.js"
 */
import { useEffect, useId, useRef, useState } from "preact/hooks"
import { operatorName, Problem, session } from "./api.js"
import { html } from "./html.js"
import { Loading, notify } from "./parts.js"
import { useStore } from "./store.js"

/**
 * A field of an action's form besides the reason.
 *
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {ReadonlyArray<{ readonly value: string, readonly label: string }>} [options] A choice; without it a line of text.
 * @property {string} [initial]
 * @property {string} [help]
 * @property {boolean} [optional]
 * @property {(values: Readonly<Record<string, string>>) => boolean} [isShown]
 * @property {"text" | "number"} [type]
 */
/**
 * @typedef {object} Action
 * @property {string} label Of the button. A form follows, so that it ends in an ellipsis by itself.
 * @property {Children | (() => Promise<Children>)} does What it will do. A function is asked when the form opens: a preview.
 * @property {(reason: string, values: Readonly<Record<string, string>>) => Promise<string>} run Answers with a sentence: what has happened.
 * @property {string} [verb] Of the button that does it; the label where it is not set.
 * @property {ReadonlyArray<Field>} [fields]
 * @property {"primary" | "danger"} [tone]
 * @property {string} [impossible] Why it can't be done now; the button is there, and says so.
 */

/** The API's bound. */
const maxReason = 500

const unknownOutcome =
  "The service did not answer, so it may have been done. Doing it again is safe: it does nothing twice."

/**
 * What a person writes survives the drawing of a live page, since it is state of this form alone.
 *
 * @param {{ readonly action: Action, readonly onClose: () => void }} props
 */
export const ActionForm = ({ action, onClose }) => {
  const id = useId()
  const [reason, setReason] = useState("")
  const [values, setValues] = useState(() =>
    Object.fromEntries((action.fields ?? []).map(({ initial = "", name }) => [name, initial]))
  )
  const [does, setDoes] = useState(typeof action.does === "function" ? undefined : action.does)
  const [problem, setProblem] = useState("")
  const [isBusy, setBusy] = useState(false)
  const isRunning = useRef(false)
  const first = useRef(/** @type {HTMLFormElement | null} */ (null))
  const isReady = does !== undefined

  useEffect(() => {
    if (typeof action.does === "function")
      action
        .does()
        .then(setDoes, (/** @type {unknown} */ error) =>
          setProblem(error instanceof Error ? error.message : String(error))
        )
  }, [])
  useEffect(() => {
    if (isReady) first.current?.querySelector(/** @type {"input"} */ ("input, select, textarea"))?.focus()
  }, [isReady])

  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault()
    // A second click comes before the button is drawn as disabled.
    if (isRunning.current) return
    if (reason.trim() === "") return setProblem("Say why: the reason stands in the audit.")
    isRunning.current = true
    setBusy(true)
    setProblem("")
    try {
      notify(await action.run(reason.trim(), values), "ok")
      onClose()
    } catch (error) {
      setProblem(
        error instanceof Problem && error.status === 0
          ? unknownOutcome
          : error instanceof Error
            ? error.message
            : String(error)
      )
    } finally {
      isRunning.current = false
      setBusy(false)
    }
  }
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape") return
    event.stopPropagation()
    onClose()
  }
  const change = (/** @type {string} */ name) => (/** @type {Event} */ event) =>
    setValues((now) => ({ ...now, [name]: /** @type {HTMLInputElement} */ (event.currentTarget).value }))

  return html`<form class="act-form" onSubmit=${submit} onKeyDown=${onKey} ref=${first} aria-label=${action.label}>
    <div class="act-does">
      ${isReady ? does : problem === "" ? html`<${Loading} what="Looking at what it would do" />` : null}
    </div>
    ${
      isReady
        ? html`${(action.fields ?? [])
              .filter(({ isShown }) => isShown?.(values) ?? true)
              .map(
                (field) =>
                  html`<div class="field" key=${field.name}>
                    <label for=${`${id}-${field.name}`}>${field.label}</label>
                    ${
                      field.options === undefined
                        ? html`<input
                            id=${`${id}-${field.name}`}
                            type=${field.type ?? "text"}
                            value=${values[field.name]}
                            required=${field.optional !== true}
                            onInput=${change(field.name)}
                          />`
                        : html`<select
                            id=${`${id}-${field.name}`}
                            value=${values[field.name]}
                            onChange=${change(field.name)}
                          >
                            ${field.options.map(({ label, value }) => html`<option key=${value} value=${value}>${label}</option>`)}
                          </select>`
                    }
                    ${field.help === undefined ? null : html`<small class="dim">${field.help}</small>`}
                  </div>`
              )}
            <div class="field">
              <label for=${`${id}-reason`}>Reason</label>
              <input
                id=${`${id}-reason`}
                value=${reason}
                maxlength=${maxReason}
                required
                autocomplete="off"
                placeholder="for the audit"
                onInput=${(/** @type {Event} */ event) => setReason(/** @type {HTMLInputElement} */ (event.currentTarget).value)}
              />
            </div>
            <${AsWhom} />`
        : null
    }
    <div aria-live="assertive">${problem === "" ? null : html`<p class="bad">${problem}</p>`}</div>
    <div class="row">
      ${
        isReady
          ? html`<button class=${action.tone ?? "primary"} aria-disabled=${isBusy}>
              ${isBusy ? "Under way …" : (action.verb ?? action.label)}
            </button>`
          : null
      }
      <button type="button" onClick=${onClose}>Cancel</button>
    </div>
  </form>`
}

/** Who the audit will name. */
const AsWhom = () => {
  const actor = useStore(session, (now) => now?.actor ?? "")
  const name = useStore(operatorName, (now) => now)
  return html`<small class="dim">The audit names ${name === "" ? actor : `${actor}/${name}`}.</small>`
}

/**
 * Buttons of actions, and the form of the one that is open beneath them. `wrap` puts the form elsewhere, such as in a row of a table.
 *
 * @param {{ readonly actions: ReadonlyArray<Action>, readonly children?: Children, readonly class?: string, readonly of?: string | undefined }} props
 */
export const Actions = ({ actions, children, class: name = "", of }) => {
  const [open, setOpen] = useState(/** @type {string | undefined} */ (undefined))
  const action = actions.find(({ label }) => label === open)
  return html`<div class=${`actions ${name}`}>
    <div class="row">${children}<${ActionButtons} actions=${actions} of=${of} open=${open} setOpen=${setOpen} /></div>
    ${action === undefined ? null : html`<${ActionForm} key=${open} action=${action} onClose=${() => setOpen(undefined)} />`}
  </div>`
}

/**
 * @param {{ readonly actions: ReadonlyArray<Action>, readonly open: string | undefined, readonly setOpen: (label: string | undefined) => void,
 *   readonly of?: string | undefined }} props
 */
export const ActionButtons = ({ actions, of, open, setOpen }) => {
  const canWrite = useStore(session, (now) => now?.canWrite === true)
  const buttons = useRef(/** @type {Map<string, HTMLButtonElement>} */ (new Map()))
  const lastOpen = useRef(open)
  useEffect(() => {
    // The focus returns to where the form was opened from.
    if (open === undefined && lastOpen.current !== undefined) buttons.current.get(lastOpen.current)?.focus()
    lastOpen.current = open
  }, [open])
  return actions.map(({ impossible, label, tone }) => {
    const why = canWrite ? impossible : "Your token may only read."
    return html`<button
      key=${label}
      type="button"
      class=${tone === "danger" ? "danger-quiet" : (tone ?? "")}
      aria-expanded=${open === label}
      aria-disabled=${why !== undefined}
      aria-label=${of === undefined ? undefined : `${label} ${of}`}
      title=${why}
      ref=${(/** @type {HTMLButtonElement | null} */ element) => {
        if (element !== null) buttons.current.set(label, element)
      }}
      onClick=${() => (why === undefined ? setOpen(open === label ? undefined : label) : notify(why))}
    >
      ${label}…
    </button>`
  })
}
