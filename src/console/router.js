/** Pages by path, filters by query: every state of a page has an address that can be sent to somebody. */
import { useEffect } from "preact/hooks"
import { makeStore, useStore } from "./store.js"

/** The address, without what is in front of the path. */
const address = makeStore(location.pathname + location.search)
addEventListener("popstate", () => address.set(location.pathname + location.search))

/**
 * Goes to an address of the console.
 *
 * @param {string} path
 * @param {{ readonly replace?: boolean }} [options]
 */
export const go = (path, { replace = false } = {}) => {
  if (replace) history.replaceState(null, "", path)
  else history.pushState(null, "", path)
  address.set(location.pathname + location.search)
}

/** The path's parts after `/console`. */
export const useSegments = () =>
  (useStore(address, (now) => now.split("?")[0]) ?? "")
    .split("/")
    .slice(2)
    .filter((part) => part !== "")
    .map(decodeSegment)

/** @param {string} part */
const decodeSegment = (part) => {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

/**
 * The query and a function that changes some of its values. An empty value leaves the query; a change leads back to the first page.
 *
 * @returns {readonly [Readonly<Record<string, string>>, (change: Readonly<Record<string, string>>) => void]}
 */
export const useQuery = () => {
  const search = useStore(address, (now) => now.split("?")[1] ?? "")
  const change = (/** @type {Readonly<Record<string, string>>} */ values) => {
    const params = new URLSearchParams(location.search)
    if (!("cursor" in values)) params.delete("cursor")
    for (const [key, value] of Object.entries(values)) {
      if (value === "") params.delete(key)
      else params.set(key, value)
    }
    go(`${location.pathname}${params.size === 0 ? "" : `?${params}`}`)
  }
  return [Object.fromEntries(new URLSearchParams(search)), change]
}

/** Follows links within the console without loading it anew. */
export const useLinks = () =>
  useEffect(() => {
    const follow = (/** @type {MouseEvent} */ event) => {
      if (
        event.defaultPrevented ||
        event.button !== 0 ||
        event.metaKey ||
        event.ctrlKey ||
        event.shiftKey ||
        event.altKey
      )
        return
      const link = event.target instanceof Element ? event.target.closest("a") : null
      if (link === null || link.target !== "" || link.origin !== location.origin) return
      if (link.pathname !== "/console" && !link.pathname.startsWith("/console/")) return
      // Within a page the browser knows the way.
      if (link.hash !== "" && link.pathname === location.pathname) return
      event.preventDefault()
      go(link.pathname + link.search + link.hash)
    }
    document.addEventListener("click", follow)
    return () => document.removeEventListener("click", follow)
  }, [])
