/** "Ask the gateway": a question, and so without a form or a reason. */
import { useState } from "preact/hooks"
import { session } from "../api.js"
import { html } from "../html.js"
import { notify } from "../parts.js"
import { useStore } from "../store.js"
import { check } from "./paymentActions.js"

const mayOnlyRead = "Your token may only read."

/** @param {{ readonly id: string, readonly onFound: (found: any) => void, readonly of?: string }} props */
export const CheckButton = ({ id, of, onFound }) => {
  const [isBusy, setBusy] = useState(false)
  const canWrite = useStore(session, (now) => now?.canWrite === true)
  const ask = async () => {
    if (!canWrite) return notify(mayOnlyRead)
    if (isBusy) return
    setBusy(true)
    try {
      onFound(await check(id))
    } catch (error) {
      notify(error instanceof Error ? error.message : String(error), "bad")
    } finally {
      setBusy(false)
    }
  }
  return html`<button
    type="button"
    aria-disabled=${isBusy || !canWrite}
    title=${canWrite ? undefined : mayOnlyRead}
    aria-label=${of === undefined ? undefined : `Ask the gateway about ${of}`}
    onClick=${ask}
  >
    ${isBusy ? "Asking …" : "Ask the gateway"}
  </button>`
}
