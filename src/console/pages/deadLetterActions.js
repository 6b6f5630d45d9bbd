/**
 * What an operator can do about an event of a list, by its state.
 *
 * @import { Action } from "../act.js"
 */
import { gapActions, inboxActions, outboxActions } from "../deadLetters.js"

const behind = "It waits behind another event of its order. Decide about that one first."

/** @type {ReadonlyArray<Action>} */
const waitsBehind = [{ label: "Retry", does: behind, impossible: behind, run: async () => behind }]

/**
 * @param {{ readonly eventId: string, readonly status: string, readonly topic: string }} event
 * @param {() => void} onDone
 * @returns {ReadonlyArray<Action>}
 */
export const actionsOfOutbox = ({ eventId, status, topic }, onDone) => {
  if (status === "parked") return waitsBehind
  return status === "dead" || status === "retrying" ? outboxActions(eventId, onDone, topic) : []
}

/**
 * @param {{ readonly consumer: string, readonly eventId: string, readonly status: string }} event
 * @param {() => void} onDone
 * @returns {ReadonlyArray<Action>}
 */
export const actionsOfInbox = ({ consumer, eventId, status }, onDone) => {
  if (status === "parked") return waitsBehind
  if (status === "gap") return gapActions(consumer, eventId, onDone)
  return status === "dead" || status === "retrying" ? inboxActions(consumer, eventId, status === "dead", onDone) : []
}
