/** One event: where it is, what it says, and its whole story in the order of time. */
import { Actions } from "../act.js"
import { outboxActions } from "../deadLetters.js"
import { counted } from "../format.js"
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { Facts, Id, Json, Loaded, PageHead, Section, State, Time } from "../parts.js"
import { Story } from "../story.js"
import { Place } from "./Events.js"

/** @typedef {import("../types.ts").EventDetails} EventDetails */

/** @param {{ readonly event: EventDetails, readonly onDone: () => void }} props */
const Held = ({ event: { aggregateParked, attempts, eventId, lastError, nextAttemptAt, status, topic }, onDone }) => {
  if (status === "published" || status === "queued") return null
  return html`<div class=${`held ${status}`}>
    ${lastError === null ? null : html`<p>${attempts === null ? "" : `${counted(attempts, "attempt")}: `}${lastError}</p>`}
    ${nextAttemptAt === null ? null : html`<p class="dim">The next attempt is at <${Time} at=${nextAttemptAt} />.</p>`}
    ${aggregateParked === 0 ? null : html`<p class="dim">${counted(aggregateParked, "event")} of this order ${aggregateParked === 1 ? "waits" : "wait"} with it.</p>`}
    ${status === "dead" ? html`<${Actions} actions=${outboxActions(eventId, onDone, topic)} />` : null}
  </div>`
}

/** @param {{ readonly segments: ReadonlyArray<string> }} props */
export const Page = ({ segments: [id = ""] }) => {
  const load = useLoad(`/admin/outbox/events/${encodeURIComponent(id)}`)
  return html`<${PageHead} title="Event"><${Id} id=${id} whole /><//>
    <${Loaded} load=${load} what="Reading the event">
      ${(/** @type {EventDetails} */ event) =>
        html` <${Section}
            title=${`${event.eventType} · version ${event.aggregateVersion}`}
            aside=${html`<button type="button" class="link" onClick=${load.reload}>Read again</button>`}
          >
            <${Facts}
              pairs=${[
                ["State", html`<${State} of=${event.status} />`],
                [
                  event.aggregateType,
                  html`<${Id} id=${event.aggregateId} href=${`/console/orders/${event.aggregateId}`} />`
                ],
                ["Occurred", html`<${Time} at=${event.occurredAt} />`],
                ["Published", html`<${Time} at=${event.publishedAt} />`],
                ["At the broker", html`<${Place} of=${event} />`],
                ["Trace", html`<${Id} id=${event.traceId} href=${`/console/events?traceId=${event.traceId}`} />`],
                ["Schema", `version ${event.schemaVersion}`],
                ...(event.lane === null ? [] : [/** @type {const} */ (["Lane", String(event.lane)])])
              ]}
            />
            <${Held} event=${event} onDone=${load.reload} />
          <//>
          <div class="two">
            <${Section} title="Its story">
              <${Story} steps=${event.story} />
            <//>
            <div class="stack">
              <${Section} title="Payload"><${Json} value=${event.data} label="payload" /><//>
              <${Section} title="Headers"><${Json} value=${event.headers} label="headers" /><//>
            </div>
          </div>`}
    <//>`
}
