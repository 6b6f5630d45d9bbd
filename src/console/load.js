/** Reads from the service, and keeps what was read while the next read is under way or fails. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks"
import { get } from "./api.js"

/**
 * @template T
 * @typedef {object} Load
 * @property {T | undefined} data
 * @property {unknown} error Of the last read; undefined where it brought data.
 * @property {number} at When `data` came, by `performance.now()`.
 * @property {boolean} isLoading
 * @property {() => void} reload
 */

/** A service that comes back is found within this time. */
const retryMillis = 3_000

/**
 * Reads `path` at once, when it changes, and every `everyMillis` while the page is visible; how often may depend on what was read. An undefined
 * path reads nothing.
 *
 * @template [T=any]
 * @param {string | undefined} path
 * @param {{ readonly everyMillis?: number | ((data: any) => number), readonly patienceMillis?: number }} [options]
 * @returns {Load<T>}
 */
export const useLoad = (path, { everyMillis, patienceMillis } = {}) => {
  const [state, setState] = useState(
    /** @type {{ path: string | undefined, data: T | undefined, error: unknown, at: number, isLoading: boolean }} */ ({
      path,
      data: undefined,
      error: undefined,
      at: 0,
      isLoading: true
    })
  )
  const again = useRef(() => {})
  // The newest function counts, and a new one reads nothing anew.
  const pace = useRef(everyMillis)
  pace.current = everyMillis
  const isPaced = everyMillis !== undefined
  useEffect(() => {
    if (path === undefined) return undefined
    const controller = new AbortController()
    let timer = 0
    let isReading = false
    let isDue = false
    const read = async () => {
      clearTimeout(timer)
      if (isReading || controller.signal.aborted) return
      isReading = true
      isDue = false
      setState((now) => ({ ...now, isLoading: true }))
      /** @type {number | undefined} */
      let wait
      try {
        const data = await get(path, controller.signal, patienceMillis)
        setState({ path, data, error: undefined, at: performance.now(), isLoading: false })
        wait = typeof pace.current === "function" ? pace.current(data) : pace.current
      } catch (error) {
        if (controller.signal.aborted) return
        setState((now) => ({ ...now, path, data: now.path === path ? now.data : undefined, error, isLoading: false }))
        // What the service refuses, it refuses again.
        const status = error instanceof Error && "status" in error ? Number(error.status) : 0
        wait = status === 0 || status >= 500 || status === 429 ? retryMillis : undefined
      } finally {
        isReading = false
      }
      if (wait !== undefined) timer = window.setTimeout(onTimer, wait)
    }
    const onTimer = () => {
      // A hidden page asks for nothing until it is seen again.
      if (document.visibilityState === "visible") void read()
      else isDue = true
    }
    const onVisible = () => {
      if (document.visibilityState === "visible" && isDue) void read()
    }
    again.current = () => void read()
    document.addEventListener("visibilitychange", onVisible)
    void read()
    return () => {
      controller.abort()
      clearTimeout(timer)
      document.removeEventListener("visibilitychange", onVisible)
    }
  }, [path, isPaced, patienceMillis])
  const reload = useCallback(() => again.current(), [])
  // Of another path nothing is shown, not even for a moment.
  return state.path === path
    ? { ...state, reload }
    : { data: undefined, error: undefined, at: 0, isLoading: true, reload }
}
