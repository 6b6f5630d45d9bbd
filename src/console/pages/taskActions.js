/**
 * What an operator can do about a task.
 *
 * @import { Action } from "../act.js"
 */
import { post } from "../api.js"

/**
 * @param {{ readonly taskId: string, readonly state: string }} task
 * @param {() => void} onDone
 * @returns {ReadonlyArray<Action>}
 */
export const taskActions = ({ state, taskId }, onDone) => {
  const run = (/** @type {string} */ verb) => async (/** @type {string} */ reason) => {
    const answer = await post(`/admin/tasks/${encodeURIComponent(taskId)}/${verb}`, { reason })
    onDone()
    return answer.changed ? `The task is ${answer.state} now.` : `Nothing changed: the task is ${answer.state} already.`
  }
  /** @type {Action} */
  const retry = {
    label: "Retry",
    does:
      state === "retrying" || state === "pending"
        ? "The task runs now instead of at its next time."
        : "The task runs again, with all its attempts.",
    run: run("retry")
  }
  /** @type {Action} */
  const cancel = {
    label: "Cancel",
    verb: "Cancel the task",
    tone: "danger",
    does:
      state === "processing"
        ? "The worker that runs the task is asked to stop it. What it has done at other services stays done."
        : "The task is not run any more.",
    run: run("cancel")
  }
  if (state === "completed") return []
  if (state === "cancelled") return [retry]
  return state === "processing" ? [cancel] : [retry, cancel]
}
