/**
 * What an operator can do about an event that waits, on both sides.
 *
 * @import { Action } from "../act.js"
 */
import { post } from "../api.js"

/** @param {string} id */
const part = (id) => encodeURIComponent(id)

/**
 * What the service says of a decision, as a sentence.
 *
 * @param {{ readonly status: string, readonly changed: boolean }} answer
 */
const told = ({ changed, status }) =>
  changed ? `The event is ${status} now.` : `Nothing changed: the event is ${status} already.`

const behind = "It waits behind another event of its order. Decide about that one first."

/**
 * @param {string} path
 * @param {() => void} onDone
 */
const deciding = (path, onDone) => async (/** @type {string} */ reason) => {
  const answer = await post(path, { reason })
  onDone()
  return told(answer)
}

/**
 * @param {{ readonly eventId: string, readonly status: string }} event
 * @param {() => void} onDone
 * @returns {ReadonlyArray<Action>}
 */
export const outboxActions = ({ eventId, status }, onDone) => {
  if (status === "parked") return [{ label: "Retry", does: behind, impossible: behind, run: async () => "" }]
  if (status !== "dead" && status !== "retrying") return []
  const path = `/admin/dead-letters/${part(eventId)}`
  return [
    {
      label: "Retry",
      does:
        status === "dead"
          ? "The event goes to the broker again, with its id, its version and all its attempts. What is parked behind it follows in order."
          : "The event is sent now instead of at its next attempt.",
      run: deciding(`${path}/retry`, onDone)
    },
    {
      label: "Discard",
      tone: "danger",
      does: "The event is given up for good: no consumer will ever see it. The later events of its order go on without it.",
      run: deciding(`${path}/discard`, onDone)
    }
  ]
}

/**
 * @param {{ readonly consumer: string, readonly eventId: string, readonly status: string }} event
 * @param {() => void} onDone
 * @returns {ReadonlyArray<Action>}
 */
export const inboxActions = ({ consumer, eventId, status }, onDone) => {
  if (status === "parked") return [{ label: "Retry", does: behind, impossible: behind, run: async () => "" }]
  const path = `/admin/inbox/dead-letters/${part(consumer)}/${part(eventId)}`
  if (status === "gap") {
    return [
      {
        label: "Skip",
        tone: "danger",
        does: `${consumer} goes on without the versions that are missing. Should they still come, they are not applied.`,
        run: deciding(`${path}/skip`, onDone)
      }
    ]
  }
  if (status !== "dead" && status !== "retrying") return []
  return [
    {
      label: "Retry",
      does:
        status === "dead"
          ? `${consumer} tries the event again, with all its attempts. What is parked behind it follows in order.`
          : `${consumer} tries the event now instead of at its next attempt.`,
      run: deciding(`${path}/retry`, onDone)
    },
    {
      label: "Discard",
      tone: "danger",
      does: `The event is given up for ${consumer}: its effect is never made. The later events of its order go on. Other consumers are not touched.`,
      run: deciding(`${path}/discard`, onDone)
    }
  ]
}
