/**
 * Pausing and resuming a topic, a consumer or a task type.
 *
 * @import { Action } from "./act.js"
 */
import { post } from "./api.js"

/** @typedef {"topic" | "consumer" | "task type"} PauseKind */

const folders = { topic: "topics", consumer: "consumers", "task type": "task-types" }

const effects = {
  topic:
    "Nothing of this topic is sent until it is resumed. Orders are taken and paid as always; their events wait in the outbox.",
  consumer: "This consumer reads nothing until it is resumed, in no process. Its events wait at the broker.",
  "task type": "No task of this type begins until it is resumed. Those that run now end as always."
}

/**
 * The one of the two that is possible now.
 *
 * @param {PauseKind} kind
 * @param {string} name
 * @param {boolean} isPaused
 * @param {{ readonly label?: string, readonly onDone?: () => void }} [options]
 * @returns {Action}
 */
export const pauseAction = (kind, name, isPaused, { label, onDone } = {}) => {
  const action = isPaused ? "resume" : "pause"
  const verb = isPaused ? "Resume" : "Pause"
  return {
    label: label ?? verb,
    verb: `${verb} ${kind} ${name}`,
    does: isPaused ? `The ${kind} ${name} goes on where it stopped. Nothing was lost.` : effects[kind],
    run: async (reason) => {
      const { changed } = await post(`/admin/${folders[kind]}/${encodeURIComponent(name)}/${action}`, { reason })
      onDone?.()
      const now = isPaused ? "runs" : "is paused"
      return changed ? `The ${kind} ${name} ${now}.` : `The ${kind} ${name} ${now} already: nothing has changed.`
    }
  }
}
