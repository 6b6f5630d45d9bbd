/**
 * The control of the demo that has started this service (src/cli/demo/Control.ts), where one has: the link that it prints brings the control's port
 * and token in the address' fragment, which reaches no server. The page's policy lets it ask that origin only where such a demo runs.
 */
import { Problem } from "./api.js"

const key = "paid-once-demo"

/** Keeps what the link brings, in this tab alone, and takes it out of the address. */
export const adopt = () => {
  const match = /^#demo=(\d{1,5})\.([\w-]{43})$/.exec(location.hash)
  if (match === null) return
  sessionStorage.setItem(key, `${match[1]}.${match[2]}`)
  history.replaceState(null, "", location.pathname + location.search)
}

/** Whether this tab was opened by the link of a demo that stays. */
export const hasDemo = () => sessionStorage.getItem(key) !== null

/** A kill waits for the process' end, and taking the broker away for locks. */
const timeoutMillis = 10_000

/**
 * Asks the control.
 *
 * @param {"GET" | "POST"} method
 * @param {string} path
 * @returns {Promise<any>}
 */
export const askDemo = async (method, path) => {
  const [port, token] = (sessionStorage.getItem(key) ?? "").split(".")
  const response = await fetch(`http://127.0.0.1:${port}${path}`, {
    method,
    headers: { authorization: `Bearer ${token}` },
    credentials: "omit",
    signal: AbortSignal.timeout(timeoutMillis)
  }).catch(() => {
    throw new Problem(0, "The demo does not answer.")
  })
  const body = await response.json()
  if (!response.ok) throw new Problem(response.status, body.detail)
  return body
}
