/** A value that components follow. */
import { useEffect, useState } from "preact/hooks"

/**
 * @template T
 * @typedef {{ get: () => T, set: (next: T) => void, update: (change: (now: T) => T) => void, subscribe: (listener: () => void) => () => void }} Store
 */

/**
 * @template T
 * @param {T} initial
 * @returns {Store<T>}
 */
export const makeStore = (initial) => {
  let value = initial
  /** @type {Set<() => void>} */
  const listeners = new Set()
  const set = (/** @type {T} */ next) => {
    if (Object.is(next, value)) return
    value = next
    for (const listener of listeners) listener()
  }
  return {
    get: () => value,
    set,
    update: (change) => set(change(value)),
    subscribe: (listener) => {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    }
  }
}

/**
 * The part of a store that a component shows. It draws again only where that part has changed.
 *
 * @template T, S
 * @param {Store<T>} store
 * @param {(value: T) => S} select
 * @returns {S}
 */
export const useStore = (store, select) => {
  const [, draw] = useState(0)
  const selected = select(store.get())
  useEffect(() => {
    let last = select(store.get())
    // It may have changed between the first drawing and this effect.
    if (!Object.is(last, selected)) draw((n) => n + 1)
    return store.subscribe(() => {
      const next = select(store.get())
      if (Object.is(next, last)) return
      last = next
      draw((n) => n + 1)
    })
  }, [store])
  return selected
}
