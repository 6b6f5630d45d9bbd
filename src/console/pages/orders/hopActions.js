/**
 * What an operator can do with a hop that waits, in place.
 *
 * @import { Action } from "../../act.js"
 * @import { Hop, Leg } from "../../types.ts"
 */
import { post } from "../../api.js"

/**
 * @param {Pick<Action, "label" | "does" | "tone"> & { readonly path: string, readonly told: string, readonly onDone: () => void }} of
 * @returns {Action}
 */
const decision = ({ onDone, path, told, ...action }) => ({
  ...action,
  run: async (reason) => {
    const { changed } = await post(path, { reason })
    onDone()
    return changed === false ? "Nothing had to be done: it was so already." : told
  }
})

/**
 * @param {Hop} hop
 * @param {Leg} leg
 * @param {() => void} onDone
 * @returns {ReadonlyArray<Action>}
 */
export const actionsOf = ({ kind, state, title }, { eventId, paymentId }, onDone) => {
  const isHeld = state === "dead" || state === "waiting"
  if (kind === "consumer" && eventId !== null && isHeld) {
    const path = `/admin/inbox/dead-letters/${encodeURIComponent(title)}/${encodeURIComponent(eventId)}`
    return [
      decision({
        label: "Retry",
        path: `${path}/retry`,
        does: `${title} applies this event again, and then those behind it.`,
        told: `${title} tries the event again.`,
        onDone
      }),
      ...(state === "dead"
        ? [
            decision({
              label: "Discard",
              tone: /** @type {const} */ ("danger"),
              path: `${path}/discard`,
              does: `${title} never applies this event. What is parked behind it goes on. This is final.`,
              told: `${title} goes on without the event.`,
              onDone
            })
          ]
        : [])
    ]
  }
  if ((kind === "lane" || kind === "broker") && eventId !== null && state === "dead") {
    const path = `/admin/dead-letters/${encodeURIComponent(eventId)}`
    return [
      decision({
        label: "Retry",
        path: `${path}/retry`,
        does: "The event is sent again, with all its attempts, and then those behind it.",
        told: "The event is sent again.",
        onDone
      }),
      decision({
        label: "Discard",
        tone: "danger",
        path: `${path}/discard`,
        does: "The event is never published. What is parked behind it goes on; consumers miss this version. This is final.",
        told: "The event is given up, and the order goes on.",
        onDone
      })
    ]
  }
  if (kind === "charge" && paymentId !== null && isHeld)
    return [
      decision({
        label: "Ask the gateway",
        path: `/admin/payments/${encodeURIComponent(paymentId)}/check`,
        does: "The gateway is asked what became of this payment. Its answer is applied; nothing is charged.",
        told: "The gateway is asked.",
        onDone
      })
    ]
  return []
}
