/** Light, dark, or as the system has it. */
import { makeStore } from "./store.js"

const storageKey = "paid-once-theme"

/** @typedef {"system" | "light" | "dark"} Theme */
const order = /** @type {const} */ (["system", "light", "dark"])

/** @type {import("./store.js").Store<Theme>} */
export const theme = makeStore(order.find((one) => one === localStorage.getItem(storageKey)) ?? "system")

const apply = () => {
  document.documentElement.dataset["theme"] = theme.get()
}
theme.subscribe(() => {
  localStorage.setItem(storageKey, theme.get())
  apply()
})
apply()

/** Goes to the next of the three. */
export const nextTheme = () => theme.update((now) => order[(order.indexOf(now) + 1) % order.length] ?? "system")
