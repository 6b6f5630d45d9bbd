/**
 * What an operator can do with a hop that waits, in place.
 *
 * @import { Action } from "../../act.js"
 * @import { Hop, Leg } from "../../types.ts"
 */
import { inboxActions, outboxActions } from "../../deadLetters.js"

/**
 * @param {Hop} hop
 * @param {Leg} leg
 * @param {() => void} onDone
 * @returns {ReadonlyArray<Action>}
 */
export const actionsOf = ({ kind, state, title }, { eventId }, onDone) => {
  const isDead = state === "dead"
  if (!isDead && state !== "waiting") return []
  if (kind === "consumer" && eventId !== null) return inboxActions(title, eventId, isDead, onDone)
  if ((kind === "lane" || kind === "broker") && eventId !== null && isDead) return outboxActions(eventId, onDone)
  return []
}
