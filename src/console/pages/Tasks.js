/** Work that runs outside of requests: how much of each type waits, why it failed, and what can be done. */
import { Actions } from "../act.js"
import { withQuery } from "../api.js"
import { bulkAction } from "../bulk.js"
import { Filter, sinceOptions } from "../filter.js"
import { counted, number } from "../format.js"
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { pauseAction } from "../pauses.js"
import { Empty, Id, Loaded, PageHead, Section, State, Time } from "../parts.js"
import { useQuery } from "../router.js"
import { Pager, Table } from "../table.js"
import { taskActions } from "./taskActions.js"

/** A person who looks at a list sees what others did within this time. */
const refreshMillis = 5_000

const states = ["pending", "processing", "retrying", "dead", "completed", "cancelled"]
const waiting = ["pending", "processing", "retrying", "dead"]

const retold = (/** @type {any} */ { retried, skipped = 0 }) =>
  `${counted(retried, "task")} tried again${skipped > 0 ? `, ${number(skipped)} had been taken meanwhile` : ""}.`

/**
 * One row for each type, with the number of its tasks in each state.
 *
 * @param {ReadonlyArray<{ readonly type: string, readonly state: string, readonly count: number }>} counts
 */
const byType = (counts) =>
  [...Map.groupBy(counts, ({ type }) => type)].map(([type, of]) => ({
    type,
    ...Object.fromEntries(of.map(({ count, state }) => [state, count]))
  }))

/** @param {{ readonly onDone: () => void }} props */
const Types = ({ onDone }) => {
  const [, change] = useQuery()
  const counts = useLoad("/admin/tasks/counts", { everyMillis: refreshMillis })
  const pauses = useLoad("/admin/pauses", { everyMillis: refreshMillis })
  const pauseOf = (/** @type {string} */ type) =>
    (pauses.data?.items ?? []).find((/** @type {any} */ one) => one.kind === "task type" && one.name === type)
  const done = () => {
    counts.reload()
    pauses.reload()
    onDone()
  }
  const columns = [
    {
      head: "Type",
      cell: (/** @type {any} */ { type }) => {
        const pause = pauseOf(type)
        return html`${type}
        ${pause === undefined ? null : html`<${State} of="paused" title=${`by ${pause.actor}: ${pause.reason}`} />`}`
      }
    },
    ...waiting.map((state) => ({
      head: state,
      as: /** @type {const} */ ("number"),
      cell: (/** @type {any} */ row) =>
        row[state] === undefined
          ? html`<span class="dim">0</span>`
          : html`<button
              type="button"
              class="figure"
              aria-label=${`${number(row[state])} ${state} of ${row.type}: show them`}
              onClick=${() => change({ type: row.type, status: state })}
            >
              ${number(row[state])}
            </button>`
    }))
  ]
  return html`<${Section} title="By type">
    <${Loaded} load=${counts} what="Counting tasks">
      ${(/** @type {any} */ { items }) => {
        const paused = (pauses.data?.items ?? []).filter((/** @type {any} */ one) => one.kind === "task type")
        const rows = byType(items)
        const idle = paused.filter((/** @type {any} */ { name }) => !rows.some(({ type }) => type === name))
        const all = [...rows, ...idle.map((/** @type {any} */ { name }) => ({ type: name }))]
        return all.length === 0
          ? html`<${Empty}>No task waits.<//>`
          : html`<${Table}
              caption="Tasks by type"
              columns=${columns}
              rows=${all}
              keyOf=${(/** @type {any} */ { type }) => type}
              actions=${(/** @type {any} */ { type }) => [pauseAction("task type", type, pauseOf(type) !== undefined, { onDone: done })]}
            />`
      }}
    <//>
  <//>`
}

/** @param {{ readonly filter: Readonly<Record<string, string | undefined>>, readonly onDone: () => void }} props */
const Causes = ({ filter: { sinceSeconds, type }, onDone }) => {
  const [, change] = useQuery()
  const load = useLoad(withQuery("/admin/tasks/causes", { sinceSeconds, type }), { everyMillis: refreshMillis })
  const columns = [
    {
      head: "Cause",
      as: /** @type {const} */ ("wide"),
      cell: (/** @type {any} */ { cause }) => html`<span class="error">${cause}</span>`
    },
    { head: "Type", cell: (/** @type {any} */ { type }) => type },
    { head: "State", cell: (/** @type {any} */ { state }) => html`<${State} of=${state} />` },
    { head: "Tasks", as: /** @type {const} */ ("number"), cell: (/** @type {any} */ { count }) => number(count) },
    { head: "First", cell: (/** @type {any} */ { first }) => html`<${Time} at=${first} />` },
    { head: "Last", cell: (/** @type {any} */ { last }) => html`<${Time} at=${last} />` },
    {
      head: "List",
      cell: (/** @type {any} */ { cause, state, type }) =>
        html`<button type="button" onClick=${() => change({ cause, status: state, type })}>Show these</button>`
    }
  ]
  return html`<${Section} title="By cause">
    <${Loaded} load=${load} what="Looking for causes">
      ${(/** @type {any} */ { items }) =>
        items.length === 0
          ? html`<${Empty}>No failures.<//>`
          : html`<${Table}
              caption="Failures by cause"
              columns=${columns}
              rows=${items}
              keyOf=${(/** @type {any} */ { cause, state, type }) => [cause, state, type].join(" ")}
              nameOf=${(/** @type {any} */ { cause }) => `all that failed so: ${cause}`}
              actions=${(/** @type {any} */ { cause, state, type }) =>
                state !== "dead"
                  ? []
                  : [
                      bulkAction({
                        label: "Retry all",
                        path: "/admin/tasks/retry",
                        filter: {
                          cause,
                          type,
                          ...(sinceSeconds === undefined ? {} : { sinceSeconds: Number(sinceSeconds) })
                        },
                        thing: "dead task",
                        does: "will run again, with all attempts.",
                        told: retold,
                        onDone: () => {
                          load.reload()
                          onDone()
                        }
                      })
                    ]}
            />`}
    <//>
  <//>`
}

const columns = [
  {
    head: "Task",
    cell: (/** @type {any} */ { taskId, type }) =>
      html`${type}<br /><${Id} id=${taskId} href=${`/console/tasks/${taskId}`} />`
  },
  {
    head: "State",
    cell: (/** @type {any} */ { cancelRequested, state }) =>
      html`<${State} of=${state} />${cancelRequested ? html`<small class="dim">is asked to stop</small>` : null}`
  },
  {
    head: "Why",
    as: /** @type {const} */ ("wide"),
    cell: (/** @type {any} */ { attempts, lastError }) =>
      html`<span class="error">${lastError ?? "–"}</span> <small class="dim">${counted(attempts, "attempt")}</small>`
  },
  { head: "Enqueued", cell: (/** @type {any} */ { enqueuedAt }) => html`<${Time} at=${enqueuedAt} />` },
  {
    head: "Next or end",
    cell: (/** @type {any} */ { executeAt, finishedAt }) => html`<${Time} at=${finishedAt ?? executeAt} />`
  }
]

export const Page = () => {
  const [query] = useQuery()
  const { cause, cursor, sinceSeconds, type } = query
  // The overview's links say state; the filter's own word is the one of all lists.
  const status = query["status"] ?? query["state"]
  const load = useLoad(withQuery("/admin/tasks", { state: status, type, cause, sinceSeconds, cursor }), {
    everyMillis: refreshMillis
  })
  const filter = { type, cause, sinceSeconds }
  return html`<${PageHead} title="Tasks" />
    <${Types} onDone=${load.reload} />
    <${Filter}
      fields=${[
        { name: "status", label: "State", options: states, any: "all that wait" },
        { name: "type", label: "Type", placeholder: "email" },
        { name: "cause", label: "Cause", placeholder: "as below" },
        { name: "sinceSeconds", label: "Within", options: sinceOptions }
      ]}
    />
    <${Causes} filter=${filter} onDone=${load.reload} />
    <${Section}
      title="Tasks"
      aside=${html`<${Actions}
        actions=${[
          bulkAction({
            label: "Retry all dead ones that match",
            path: "/admin/tasks/retry",
            filter: {
              ...Object.fromEntries(Object.entries({ type, cause }).filter(([, value]) => value !== undefined)),
              ...(sinceSeconds === undefined ? {} : { sinceSeconds: Number(sinceSeconds) })
            },
            thing: "dead task",
            does: "will run again, with all attempts.",
            told: retold,
            onDone: load.reload
          })
        ]}
      />`}
    >
      <${Loaded} load=${load} what="Looking for tasks">
        ${(/** @type {any} */ { items, nextCursor }) =>
          html`${
              items.length === 0
                ? html`<${Empty}>No task ${status === undefined ? "waits" : `is ${status}`}.<//>`
                : html`<${Table}
                    caption="Tasks"
                    columns=${columns}
                    rows=${items}
                    keyOf=${(/** @type {any} */ { taskId }) => taskId}
                    nameOf=${(/** @type {any} */ { taskId, type }) => `${type} task ${taskId}`}
                    actions=${(/** @type {any} */ task) => taskActions(task, load.reload)}
                  />`
            } <${Pager} nextCursor=${nextCursor} count=${items.length} />`}
      <//>
    <//>`
}
