/** One event: where it is, what it says, and its whole story in the order of time. */
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { Empty, Facts, Id, Json, Loaded, PageHead, Section, State, Time } from "../parts.js"
import { Place } from "./Events.js"

/** @typedef {import("../types.ts").EventStory} EventStory */

/** @param {{ readonly segments: ReadonlyArray<string> }} props */
export const Page = ({ segments: [id = ""] }) => {
  const load = useLoad(`/admin/events/${encodeURIComponent(id)}`)
  return html`<${PageHead} title="Event"><${Id} id=${id} whole /><//>
    <${Loaded} load=${load} what="Reading the event">
      ${(/** @type {EventStory} */ event) =>
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
                ["Trace", html`<${Id} id=${event.traceId} href=${`/console/events?traceId=${event.traceId}`} />`]
              ]}
            />
          <//>
          <div class="two">
            <${Section} title="Its story">
              ${
                event.story.length === 0
                  ? html`<${Empty}>Nothing is known of it but that it is there.<//>`
                  : html`<ol class="story plain">
                      ${event.story.map(
                        (step, i) =>
                          html`<li key=${i}>
                            <${Time} at=${step.at} />
                            <p>
                              ${step.what}${step.by === undefined ? null : html` <span class="dim">by ${step.by}</span>`}
                            </p>
                          </li>`
                      )}
                    </ol>`
              }
            <//>
            <div class="stack">
              <${Section} title="Payload"><${Json} value=${event.data} label="payload" /><//>
              <${Section} title="Headers"><${Json} value=${event.headers} label="headers" /><//>
            </div>
          </div>`}
    <//>`
}
