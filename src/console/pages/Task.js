/** One task, with its failures and what operators did about it. */
import { Actions } from "../act.js"
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { Facts, Id, Loaded, PageHead, Section, State, Time } from "../parts.js"
import { stepsOf, Story } from "../story.js"
import { taskActions } from "./taskActions.js"

/** A person who watches a retry sees its end within this time. */
const refreshMillis = 2_000

/** @param {{ readonly segments: ReadonlyArray<string> }} props */
export const Page = ({ segments: [id = ""] }) => {
  const load = useLoad(`/admin/tasks/${encodeURIComponent(id)}`, { everyMillis: refreshMillis })
  return html`<${PageHead} title="Task"><a href="/console/tasks">All tasks</a><//>
    <${Loaded} load=${load} what="Looking for the task">
      ${(/** @type {any} */ task) =>
        html`<${Section} title=${task.type}>
            <${Facts}
              pairs=${[
                ["id", html`<${Id} id=${task.taskId} whole />`],
                ["state", html`<${State} of=${task.state} />${task.cancelRequested ? " is asked to stop" : ""}`],
                ["attempts", task.attempts],
                ["enqueued", html`<${Time} at=${task.enqueuedAt} />`],
                [
                  task.finishedAt === null ? "due" : "finished",
                  html`<${Time} at=${task.finishedAt ?? task.executeAt} />`
                ],
                ["priority", task.priority],
                ["runs in", task.leasedBy ?? "–"],
                ["idempotency key", task.idempotencyKey ?? "–"],
                ["ordering key", task.orderingKey ?? "–"],
                [
                  "trace",
                  task.traceId === null
                    ? "–"
                    : html`<${Id} id=${task.traceId} href=${`/console/events?traceId=${task.traceId}`} />`
                ]
              ]}
            />
            ${task.lastError === null ? null : html`<p class="error">${task.lastError}</p>`}
            <${Actions} actions=${taskActions(task, load.reload)} />
          <//>
          <${Section} title="What happened"><${Story} steps=${stepsOf(task)} /><//>`}
    <//>`
}
