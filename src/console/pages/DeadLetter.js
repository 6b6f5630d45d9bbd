/** One event that waits, with all that is known of it. */
import { Actions } from "../act.js"
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { Facts, Id, Json, Loaded, PageHead, Section, State, Time } from "../parts.js"
import { stepsOf, Story } from "../story.js"
import { actionsOfInbox, actionsOfOutbox } from "./deadLetterActions.js"

/** A person who watches a retry sees its end within this time. */
const refreshMillis = 2_000

/**
 * The facts that both sides have.
 *
 * @param {any} event
 */
const factsOf = (event) => [
  ["event", html`<${Id} id=${event.eventId} whole />`],
  ["type", event.eventType ?? "can't be read"],
  ["state", html`<${State} of=${event.status} />`],
  [
    "order",
    html`<${Id} id=${event.aggregateId} href=${`/console/orders/${encodeURIComponent(event.aggregateId)}`} whole />`
  ],
  ["version", event.aggregateVersion ?? "–"],
  ["topic", event.topic],
  ["attempts", event.attempts ?? "–"],
  ["next attempt", html`<${Time} at=${event.nextAttemptAt} />`],
  ["written", html`<${Time} at=${event.occurredAt ?? event.parkedAt} />`],
  [
    "partition and offset",
    event.partition === null || event.partition === undefined ? "–" : `${event.partition}, ${event.offset}`
  ],
  ["parked behind it", event.aggregateParked ?? event.parked ?? "–"]
]

/** @param {{ readonly event: any }} props */
const Contents = ({ event: { data, headers, payload = data } }) =>
  html`<${Section} title="Payload">
      ${
        payload === undefined || payload === null
          ? html`<p class="dim">The service does not tell it.</p>`
          : html`<${Json} label="payload as JSON" value=${payload} />`
      }
    <//>
    ${headers === undefined || headers === null ? null : html`<${Section} title="Headers"><${Json} label="headers as JSON" value=${headers} /><//>`}`

/**
 * @param {{ readonly path: string, readonly title: string, readonly side: string, readonly actionsOf: (event: any, onDone: () => void) => ReadonlyArray<import("../act.js").Action> }} props
 */
const Event = ({ actionsOf, path, side, title }) => {
  const load = useLoad(path, { everyMillis: refreshMillis })
  return html`<${PageHead} title=${title}><a href=${`/console/dead-letters?side=${side}`}>All dead letters</a><//>
    <${Loaded} load=${load} what="Looking for the event">
      ${(/** @type {any} */ event) =>
        html`<${Section} title="What is known">
            <${Facts} pairs=${factsOf(event)} />
            ${event.lastError === null || event.lastError === undefined ? null : html`<p class="error">${event.lastError}</p>`}
            <${Actions} actions=${actionsOf(event, load.reload)} />
          <//>
          <${Section} title="What happened"><${Story} steps=${event.story ?? stepsOf(event)} /><//>
          <${Contents} event=${event} />`}
    <//>`
}

/** @param {{ readonly segments: ReadonlyArray<string> }} props */
export const Page = ({ segments: [side = "", ...rest] }) => {
  if (side === "inbox") {
    const [consumer = "", eventId = ""] = rest
    return html`<${Event}
      side="inbox"
      title=${`Event for ${consumer}`}
      path=${`/admin/inbox/dead-letters/${encodeURIComponent(consumer)}/${encodeURIComponent(eventId)}`}
      actionsOf=${actionsOfInbox}
    />`
  }
  return html`<${Event}
    side="outbox"
    title="Event to the broker"
    path=${`/admin/outbox/events/${encodeURIComponent(rest[0] ?? "")}`}
    actionsOf=${actionsOfOutbox}
  />`
}
