/**
 * What an operator can do with an event that waits for a decision, on either side of the broker.
 *
 * @import { Action } from "./act.js"
 */
import { get, post } from "./api.js"
import { live } from "./live.js"

/**
 * An action that posts a reason, and tells whether something has changed.
 *
 * @param {Pick<Action, "label" | "does" | "tone"> & { readonly path: string, readonly told: string | (() => string), readonly onDone: () => void }} of
 * @returns {Action}
 */
export const decision = ({ onDone, path, told, ...action }) => ({
  ...action,
  run: async (reason) => {
    const { changed } = await post(path, { reason })
    onDone()
    return changed === false ? "Nothing had to be done: it was so already." : typeof told === "function" ? told() : told
  }
})

/**
 * Of an event that the broker refused.
 *
 * @param {string} eventId
 * @param {() => void} onDone
 * @param {string} [topic]
 * @returns {ReadonlyArray<Action>}
 */
export const outboxActions = (eventId, onDone, topic) => {
  const path = `/admin/dead-letters/${encodeURIComponent(eventId)}`
  return [
    decision({
      label: "Retry",
      path: `${path}/retry`,
      does: "The event is sent again, with all its attempts, and then those behind it.",
      told: () =>
        live.get().overview?.paused.some(({ kind, name }) => kind === "topic" && name === topic) === true
          ? `The event is sent again as soon as ${topic} is resumed: the topic is paused.`
          : "The event is sent again.",
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

/**
 * Of an event that a consumer can't apply. One that is still being retried becomes due now, and can't be given up yet.
 *
 * @param {string} consumer
 * @param {string} eventId
 * @param {boolean} isDead
 * @param {() => void} onDone
 * @returns {ReadonlyArray<Action>}
 */
export const inboxActions = (consumer, eventId, isDead, onDone) => {
  const path = `/admin/inbox/dead-letters/${encodeURIComponent(consumer)}/${encodeURIComponent(eventId)}`
  const retry = decision({
    label: "Retry",
    path: `${path}/retry`,
    does: `${consumer} tries this event again, and then those behind it.`,
    told: `${consumer} tries the event again.`,
    onDone
  })
  const discard = decision({
    label: "Discard",
    tone: "danger",
    path: `${path}/discard`,
    does: `${consumer} never applies this event. What is parked behind it goes on. This is final.`,
    told: `${consumer} goes on without the event.`,
    onDone
  })
  return isDead ? [retry, discard] : [retry]
}

/**
 * Of an event whose earlier versions have not come to a consumer. The form says first which ones are missing now.
 *
 * @param {string} consumer
 * @param {string} eventId
 * @param {() => void} onDone
 * @returns {ReadonlyArray<Action>}
 */
export const gapActions = (consumer, eventId, onDone) => {
  const path = `/admin/inbox/dead-letters/${encodeURIComponent(consumer)}/${encodeURIComponent(eventId)}`
  return [
    decision({
      label: "Skip",
      tone: "danger",
      path: `${path}/skip`,
      does: async () => {
        const { aggregateVersion, lastError, status } = await get(path)
        return status === "gap"
          ? `${consumer} goes on with version ${aggregateVersion}, without what is missing: ${lastError}. Should it still come, it is not applied.`
          : `${consumer} does not miss anything before this event any more: nothing would change.`
      },
      told: `${consumer} goes on without the missing versions.`,
      onDone
    })
  ]
}
