/** Signs in with a token, shown or from the link of the start, and signs out. */
import { useEffect, useState } from "preact/hooks"
import { exchange, get, Problem, session } from "./api.js"
import { askDemo, hasDemo } from "./demo.js"
import { html } from "./html.js"
import { Failure } from "./parts.js"

/** A service that starts again answers within seconds. */
const retryMillis = 2_000

const tokenInAddress = () => new URL(location.href).searchParams.get("token")

/** The token is good once, and stays in no history. */
const dropToken = () => {
  const url = new URL(location.href)
  url.searchParams.delete("token")
  history.replaceState(null, "", url)
}

const signedInKey = "paid-once-signed-in"
// The cookie is hidden from scripts: this browser remembers that it had a session, until somebody signs out.
session.subscribe(() => {
  if (session.get()) localStorage.setItem(signedInKey, "yes")
})

/** Whether the token of the address was refused. */
let isLinkRefused = false

/** Why there is no session any more; undefined where nobody had one. */
const whyNobody = () =>
  isLinkRefused
    ? "This link was used already, or it is from an earlier start of the service."
    : localStorage.getItem(signedInKey) === null
      ? undefined
      : "Your session has ended. A restart of the service ends those of its link."

/** @param {string} token */
const signIn = async (token) => {
  await exchange("POST", "/admin/session", { body: { token } })
  isLinkRefused = false
  session.set(await get("/admin/session"))
}

/** Ends the session here and at the service. */
export const signOut = async () => {
  await exchange("DELETE", "/admin/session")
  localStorage.removeItem(signedInKey)
  session.set(null)
}

/** Finds out who acts, at the start. */
const begin = async (token = tokenInAddress()) => {
  if (token !== null) {
    try {
      await signIn(token)
      dropToken()
      return
    } catch (error) {
      // Without an answer, or with that of an outage, the next attempt needs the token.
      if (error instanceof Problem && (error.status === 0 || error.status >= 500)) throw error
      // A link that was opened twice: the browser may have a session already.
      dropToken()
      isLinkRefused = true
    }
  }
  try {
    session.set(await get("/admin/session"))
    isLinkRefused = false
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 401) throw error
    session.set(null)
  }
}

/** What stands in the page's place until the session is known. */
export const Starting = () => {
  const [problem, setProblem] = useState(/** @type {Problem | undefined} */ (undefined))
  useEffect(() => {
    let timer = 0
    const attempt = () =>
      void begin().catch((error) => {
        setProblem(error)
        timer = window.setTimeout(attempt, retryMillis)
      })
    attempt()
    return () => clearTimeout(timer)
  }, [])
  return html`<main class="alone" id="main">
    <h1>Paid Once</h1>
    ${
      problem === undefined
        ? html`<p role="status">Asking the service who you are …</p>`
        : html`<${Failure} error=${problem} />
            <p>Trying again every two seconds.</p>`
    }
  </main>`
}

/** A demo starts its service again within seconds. */
const demoMillis = 1_000

/** The service of a demo has lost its sessions with its process. The demo knows the token that the new process has drawn. */
const useDemoToken = () =>
  useEffect(() => {
    if (!hasDemo()) return undefined
    let timer = 0
    let isOver = false
    /** @type {string | null} */
    let tried = null
    const attempt = async () => {
      const token = await askDemo("GET", "/state").then(
        ({ signIn }) => signIn,
        () => null
      )
      if (token !== null && token !== tried) {
        tried = token
        await begin(token).catch(() => undefined)
      }
      if (!isOver) timer = window.setTimeout(() => void attempt(), demoMillis)
    }
    void attempt()
    return () => {
      isOver = true
      clearTimeout(timer)
    }
  }, [])

/** Asks for a token. */
export const SignIn = () => {
  useDemoToken()
  const [why] = useState(whyNobody)
  const [token, setToken] = useState("")
  const [problem, setProblem] = useState(/** @type {string | undefined} */ (undefined))
  const [isBusy, setBusy] = useState(false)
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault()
    if (isBusy || token.trim() === "") return
    setBusy(true)
    try {
      await signIn(token.trim())
    } catch (error) {
      setProblem(
        error instanceof Problem && (error.status === 401 || error.status === 403)
          ? "This is no token of this service, or its link has been used already."
          : String(error instanceof Error ? error.message : error)
      )
      setBusy(false)
    }
  }
  return html`<main class="alone" id="main">
    <h1>Paid Once</h1>
    <form class="card stack" onSubmit=${submit}>
      ${why === undefined ? null : html`<p role="status">${why}</p>`}
      <label for="token">Operator's token</label>
      <input
        id="token"
        type="password"
        autocomplete="current-password"
        required
        autofocus
        value=${token}
        onInput=${(/** @type {InputEvent} */ event) =>
          setToken(/** @type {HTMLInputElement} */ (event.currentTarget).value)}
        aria-describedby="token-help"
      />
      <p class="dim" id="token-help">
        The value of <code>ADMIN_TOKEN</code>, or an API key of scope operator or viewer. A service that has neither
        prints a link at its start: open the newest one. It is good once, and a restart prints another.
      </p>
      <div aria-live="polite">${problem === undefined ? null : html`<p class="bad">${problem}</p>`}</div>
      <div><button class="primary" disabled=${isBusy}>Sign in</button></div>
    </form>
  </main>`
}
