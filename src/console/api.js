/** Calls the service. A failure is a {@link Problem}, whose message a person can act on. */
import { makeStore } from "./store.js"

/**
 * Who acts. `undefined` while it is being found out, `null` where nobody is signed in.
 *
 * @typedef {{ readonly actor: string, readonly canWrite: boolean }} Session
 * @type {import("./store.js").Store<Session | null | undefined>}
 */
export const session = makeStore(/** @type {Session | null | undefined} */ (undefined))

const operatorKey = "paid-once-operator"

/** The name that a person has entered for the audit; empty where none is. */
export const operatorName = makeStore(localStorage.getItem(operatorKey) ?? "")
operatorName.subscribe(() => localStorage.setItem(operatorKey, operatorName.get()))

/** A refused or failed call. `status` is 0 where no answer came. */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {unknown} [body]
   */
  constructor(status, message, body) {
    super(message)
    this.status = status
    this.body = body
  }
}

/** The service answers its slowest page within a second; what takes longer has been lost on the way. */
const timeoutMillis = 15_000

const unanswered = "The service does not answer."

/**
 * @param {unknown} body
 * @returns {body is { title?: string, detail?: string, errors?: ReadonlyArray<{ in?: string, pointer?: string, message: string }> }}
 */
const isProblem = (body) => typeof body === "object" && body !== null && "title" in body

/**
 * @param {number} status
 * @param {unknown} body
 * @param {string | null} retryAfter
 */
const messageOf = (status, body, retryAfter) => {
  if (status === 429) return `Too many requests. Try again in ${retryAfter ?? "a few"} s.`
  if (!isProblem(body)) return `The service answered ${status}.`
  const wrong = (body.errors ?? []).map(
    ({ message, pointer }) =>
      `${pointer === undefined || pointer === "" ? "" : `${pointer.replace(/^\//, "")}: `}${message}`
  )
  return [body.detail ?? body.title ?? `The service answered ${status}.`, ...wrong].join(" · ")
}

/**
 * @param {Response} response
 * @returns {Promise<unknown>}
 */
const bodyOf = async (response) => {
  const text = await response.text()
  if (text === "") return undefined
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/**
 * @typedef {{ readonly body?: unknown, readonly signal?: AbortSignal | undefined, readonly headers?: Readonly<Record<string, string>>,
 *   readonly patienceMillis?: number }} Options
 */

/**
 * Calls the service and answers with status and body. A 401 ends the session here, so that the page asks for a token.
 *
 * @param {string} method
 * @param {string} path
 * @param {Options} [options]
 */
export const exchange = async (method, path, { body, headers, patienceMillis = timeoutMillis, signal } = {}) => {
  const name = operatorName.get()
  const timeout = AbortSignal.timeout(patienceMillis)
  /** @type {Response} */
  let response
  /** @type {unknown} */
  let answer
  try {
    response = await fetch(path, {
      method,
      headers: {
        accept: "application/json",
        ...(method === "GET" ? {} : { "content-type": "application/json" }),
        ...(name === "" ? {} : { "x-operator": encodeURIComponent(name) }),
        ...headers
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
      credentials: "same-origin"
    })
    answer = await bodyOf(response)
  } catch (cause) {
    if (signal?.aborted === true) throw cause
    throw new Problem(0, unanswered)
  }
  if (response.status === 401 && path !== "/admin/session") session.set(null)
  if (!response.ok)
    throw new Problem(response.status, messageOf(response.status, answer, response.headers.get("retry-after")), answer)
  return { status: response.status, body: answer }
}

/**
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @param {number} [patienceMillis]
 * @returns {Promise<any>}
 */
export const get = async (path, signal, patienceMillis) =>
  (await exchange("GET", path, { signal, ...(patienceMillis === undefined ? {} : { patienceMillis }) })).body

/**
 * @param {string} path
 * @param {unknown} [body]
 * @param {Readonly<Record<string, string>>} [headers]
 * @returns {Promise<any>}
 */
export const post = async (path, body, headers) =>
  (await exchange("POST", path, { body, ...(headers === undefined ? {} : { headers }) })).body

/**
 * @param {string} path
 * @param {unknown} body
 * @returns {Promise<any>}
 */
export const put = async (path, body) => (await exchange("PUT", path, { body })).body

/**
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<any>}
 */
export const remove = async (path, body) => (await exchange("DELETE", path, { body })).body

/**
 * A path with a query of the values that are set.
 *
 * @param {string} path
 * @param {Readonly<Record<string, string | number | undefined | null>>} query
 */
export const withQuery = (path, query) => {
  const set = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "")
  return set.length === 0 ? path : `${path}?${new URLSearchParams(set.map(([key, value]) => [key, String(value)]))}`
}
