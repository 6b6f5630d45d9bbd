/** Mail that was not sent, or of which nobody knows whether it was. */
import { Actions } from "../act.js"
import { post, withQuery } from "../api.js"
import { bulkAction } from "../bulk.js"
import { Filter, sinceOptions } from "../filter.js"
import { counted, number } from "../format.js"
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { Empty, Id, Loaded, PageHead, Section, State, Time } from "../parts.js"
import { useQuery } from "../router.js"
import { Pager, Table } from "../table.js"

/** A person who looks at a list sees what others did within this time. */
const refreshMillis = 5_000

const statuses = ["dead", "waiting", "uncertain", "retrying", "failed", "refused", "sending", "given-up", "sent"]

const stateColumn = {
  head: "State",
  cell: (/** @type {any} */ { status, taskState }) =>
    html`<${State}
        of=${status}
      />${taskState === "dead" && status !== "dead" ? html` <${State} of="dead" text="not tried again" />` : null}`
}

/** The states of dead mail that a retry of many can be narrowed to. */
const deadStatuses = new Set(["dead", "uncertain", "refused", "failed", "sending"])

/**
 * Sends all dead mail that matches again.
 *
 * @param {string} label
 * @param {Readonly<Record<string, string | undefined>>} filter
 * @param {() => void} onDone
 */
const retryAll = (label, { sinceSeconds, status, ...filter }, onDone) =>
  bulkAction({
    label,
    path: "/admin/mail/retry",
    filter: {
      ...Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== undefined)),
      ...(status !== undefined && deadStatuses.has(status) ? { status } : {}),
      ...(sinceSeconds === undefined ? {} : { sinceSeconds: Number(sinceSeconds) })
    },
    thing: "dead mail",
    does: "will be sent again, with the same Message-ID. Where an earlier send had no answer, its receiver may get a second copy.",
    told: ({ mayBeCopies, retried, skipped }) =>
      `${counted(retried, "mail")} sent again${mayBeCopies > 0 ? `, ${number(mayBeCopies)} maybe a second time` : ""}${skipped > 0 ? `; ${number(skipped)} had been taken meanwhile` : ""}.`,
    onDone
  })

/** @param {{ readonly filter: Readonly<Record<string, string | undefined>>, readonly onDone: () => void }} props */
const Causes = ({ filter, onDone }) => {
  const [, change] = useQuery()
  const load = useLoad(withQuery("/admin/mail/causes", filter), { everyMillis: refreshMillis })
  const columns = [
    {
      head: "Cause",
      as: /** @type {const} */ ("wide"),
      cell: (/** @type {any} */ { cause }) => html`<span class="error">${cause}</span>`
    },
    stateColumn,
    { head: "Mails", as: /** @type {const} */ ("number"), cell: (/** @type {any} */ { count }) => number(count) },
    { head: "First", cell: (/** @type {any} */ { first }) => html`<${Time} at=${first} />` },
    { head: "Last", cell: (/** @type {any} */ { last }) => html`<${Time} at=${last} />` },
    {
      head: "List",
      cell: (/** @type {any} */ { cause, status }) =>
        html`<button type="button" onClick=${() => change({ cause, status })}>Show these</button>`
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
              keyOf=${(/** @type {any} */ { cause, status, taskState }) => [cause, status, taskState].join(" ")}
              nameOf=${(/** @type {any} */ { cause, status }) => `${status} mail that failed so: ${cause}`}
              actions=${(/** @type {any} */ { cause, status, taskState }) =>
                taskState !== "dead"
                  ? []
                  : [
                      retryAll("Send all again", { ...filter, cause, status }, () => {
                        load.reload()
                        onDone()
                      })
                    ]}
            />`}
    <//>
  <//>`
}

/**
 * @param {any} mail
 * @param {() => void} onDone
 * @returns {ReadonlyArray<import("../act.js").Action>}
 */
const actionsOf = ({ id, status, uncertainSends }, onDone) => {
  const call = async (/** @type {string} */ verb, /** @type {object} */ body) => {
    const answer = await post(`/admin/mail/${encodeURIComponent(id)}/${verb}`, body)
    onDone()
    return answer
  }
  const resolved = (/** @type {string} */ outcome) => async (/** @type {string} */ reason) => {
    const answer = await call("resolve", { outcome, reason })
    return answer.changed
      ? `The mail is ${answer.status} by your word.`
      : `Nothing changed: the mail is ${answer.status} already.`
  }
  /** @type {import("../act.js").Action} */
  const retry = {
    label: "Send again",
    does:
      uncertainSends > 0 || status === "uncertain" || status === "sending"
        ? "The mail is sent now, with its Message-ID. An earlier send had no answer: its receiver may get a second copy."
        : "The mail is sent now, with its Message-ID.",
    run: async (reason) => {
      const answer = await call("retry", { reason })
      return answer.changed ? "The mail is sent again." : "Nothing changed: the mail is about to be sent."
    }
  }
  /** @type {import("../act.js").Action} */
  const arrived = {
    label: "It arrived",
    does: "The mail counts as delivered, by your word. It is not sent again.",
    run: resolved("delivered")
  }
  /** @type {import("../act.js").Action} */
  const giveUp = { label: "Give up", tone: "danger", does: "The mail is not sent any more.", run: resolved("given-up") }
  // What was never begun is still a task alone, which its id leads to.
  if (status === "sent" || status === "waiting") return []
  if (status === "given-up") return [retry]
  return status === "uncertain" || status === "sending" ? [retry, arrived, giveUp] : [retry, giveUp]
}

const columns = [
  {
    head: "Mail",
    as: /** @type {const} */ ("wide"),
    cell: (/** @type {any} */ { id, kind, recipient, subject }) =>
      html`${subject}<br /><small class="dim">${kind} to ${recipient}</small><br /><${Id}
          id=${id}
          href=${`/console/tasks/${id}`}
        />`
  },
  stateColumn,
  {
    head: "Why",
    as: /** @type {const} */ ("wide"),
    cell: (/** @type {any} */ { lastError, sends, uncertainSends }) =>
      html`<span class="error">${lastError ?? "–"}</span>
        <small class="dim"
          >${counted(sends, "send")}${uncertainSends > 0 ? `, ${uncertainSends} without an answer` : ""}</small
        >`
  },
  { head: "Changed", cell: (/** @type {any} */ { updatedAt }) => html`<${Time} at=${updatedAt} />` },
  { head: "Next send", cell: (/** @type {any} */ { nextSendAt }) => html`<${Time} at=${nextSendAt} />` }
]

export const Page = () => {
  const [{ cause, cursor, customer, order, sinceSeconds, status }] = useQuery()
  const filter = { customer, order, sinceSeconds }
  const load = useLoad(withQuery("/admin/mail", { ...filter, status, cause, cursor }), { everyMillis: refreshMillis })
  const isNarrow = [cause, customer, order, sinceSeconds].some((value) => value !== undefined)
  return html`<${PageHead} title="Mail" />
    <${Filter}
      fields=${[
        { name: "status", label: "State", options: statuses, any: "all that wait" },
        { name: "cause", label: "Cause", placeholder: "as below" },
        { name: "order", label: "Order", placeholder: "its id" },
        { name: "customer", label: "Customer", placeholder: "id or address" },
        { name: "sinceSeconds", label: "Changed within", options: sinceOptions }
      ]}
    />
    <${Causes} filter=${filter} onDone=${load.reload} />
    <${Section}
      title="Mail"
      aside=${
        status === undefined || deadStatuses.has(status)
          ? html`<${Actions}
              actions=${[retryAll("Send all dead ones that match again", { ...filter, cause, status }, load.reload)]}
            />`
          : null
      }
    >
      <${Loaded} load=${load} what="Looking for mail">
        ${(/** @type {any} */ { items, nextCursor }) =>
          html`${
              items.length === 0
                ? html`<${Empty}
                    >No mail ${status === undefined ? "waits" : `is ${status}`}${isNarrow ? " and matches" : ""}.<//
                  >`
                : html`<${Table}
                    caption="Mail"
                    columns=${columns}
                    rows=${items}
                    keyOf=${(/** @type {any} */ { id }) => id}
                    nameOf=${(/** @type {any} */ { id }) => `mail ${id}`}
                    actions=${(/** @type {any} */ mail) => actionsOf(mail, load.reload)}
                  />`
            } <${Pager} nextCursor=${nextCursor} count=${items.length} />`}
      <//>
    <//>`
}
