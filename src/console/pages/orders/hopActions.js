/**
 * What an operator can do with a hop that waits, in place.
 *
 * @import { Action } from "../../act.js"
 * @import { Hop, Leg } from "../../types.ts"
 * @import { PauseKind } from "../../pauses.js"
 */
import { decision, gapActions, inboxActions, outboxActions } from "../../deadLetters.js"
import { pauseAction } from "../../pauses.js"

/**
 * A hop names the command that frees it. That of a pause tells what is paused.
 *
 * @type {ReadonlyArray<readonly [string, PauseKind]>}
 */
const resumes = [
  ["paid-once dispatcher resume ", "topic"],
  ["paid-once consumers resume ", "consumer"],
  ["paid-once tasks resume ", "task type"]
]

/**
 * @param {Pick<Hop, "kind" | "title" | "command" | "facts"> & { readonly state: string }} hop
 * @param {Leg} leg
 * @param {() => void} onDone
 * @returns {ReadonlyArray<Action>}
 */
export const actionsOf = ({ command, facts, kind, state, title }, { eventId }, onDone) => {
  const resume = resumes.find(([prefix]) => command?.startsWith(prefix) === true)
  if (resume !== undefined) {
    const [prefix, paused] = resume
    const name = (command ?? "").slice(prefix.length)
    return [pauseAction(paused, name, true, { label: `Resume ${name}`, onDone })]
  }
  const isDead = state === "dead"
  // A parked event names the command of the one in front of it: there is nothing to do with this one.
  const isHead = eventId !== null && command?.includes(eventId) === true
  if (kind === "consumer" && command === `paid-once inbox skip ${title} ${eventId}`)
    return gapActions(title, eventId ?? "", onDone)
  if (kind === "consumer" && isHead && (isDead || state === "retrying" || state === "parked"))
    return inboxActions(title, eventId, isDead, onDone)
  if (kind === "lane" && isHead && (isDead || state === "retrying")) return outboxActions(eventId, onDone)
  const mail = facts.find(({ name }) => name === "task")?.value
  if (kind === "mail" && isDead && mail !== undefined)
    return [
      decision({
        label: "Send again",
        path: `/admin/mail/${encodeURIComponent(mail)}/retry`,
        does: "The mail is sent again. If it has arrived already, it arrives twice.",
        told: "The mail is sent again.",
        onDone
      })
    ]
  return []
}
