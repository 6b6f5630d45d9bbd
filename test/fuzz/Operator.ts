/** The fuzzer's own knowledge of the operators' API: a credential, names that exist, and decisions that it must not take. */
import { Effect } from "effect"
import { consumerNames, taskTypeNames, topicNames } from "../../src/main/Names.ts"
import type { Dice } from "./Dice.ts"

/** The service's ADMIN_TOKEN. */
export const token = "the-fuzzers-own-token"

export const isAdmin = (path: string): boolean => path.startsWith("/admin/")

/** An answer that never ends is no answer to this fuzzer. */
export const isEndless = (path: string): boolean => path === "/admin/stream"

/**
 * Decisions that give something up, or say what nobody knows. The books would rightly disagree after one about a real event, task or payment,
 * so they get ids of nothing.
 */
const isFinal = (path: string): boolean => /\/(?:discard|skip|cancel|settle|resolve)$/.test(path)

/** The pool of real ids for a path; undefined for a path that gets ids of nothing. */
export const poolOf = (path: string): string | undefined => {
  if (isFinal(path)) return undefined
  if (path.startsWith("/admin/payments")) return "payments"
  if (path.startsWith("/admin/orders")) return "orders"
  if (path === "/admin/audit") return "audit"
  return /^\/admin\/(?:tasks|mail)/.test(path) ? "tasks" : "admin events"
}

/** A name of a path that exists, most of the time. Pauses are no faults: {@link resumeAll} ends them before everything has to come to rest. */
export const nameFor = (dice: Dice, parameter: string): string | undefined =>
  (parameter === "name" || parameter === "consumer") && dice.chance(0.9)
    ? dice.pick([...consumerNames, ...topicNames, ...taskTypeNames])
    : undefined

/** The ids in the answer to a list. */
export const idsIn = (text: string): ReadonlyArray<string> => {
  const { items = [] } = JSON.parse(text) as { readonly items?: ReadonlyArray<Readonly<Record<string, unknown>>> }
  return items.flatMap(({ eventId, id, taskId }) => [eventId ?? taskId ?? id].filter((one) => typeof one === "string"))
}

/** Ends every pause. */
export const resumeAll = (url: string) =>
  Effect.promise(async () => {
    const ask = async (path: string, init: RequestInit = {}) =>
      fetch(`${url}/admin${path}`, {
        ...init,
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" }
      })
    const { items } = (await (await ask("/pauses")).json()) as {
      readonly items: ReadonlyArray<{ readonly kind: string; readonly name: string }>
    }
    for (const { kind, name } of items) {
      await ask(`/${kind.replace(" ", "-")}s/${name}/resume`, {
        method: "POST",
        body: JSON.stringify({ reason: "calm" })
      })
    }
  })
