/** Mail that was not sent, or of which nobody knows whether it was. */
import { post, withQuery } from "../api.js"
import { Filter, sinceOptions } from "../filter.js"
import { counted } from "../format.js"
import { html } from "../html.js"
import { useLoad } from "../load.js"
import { Empty, Id, Loaded, PageHead, Section, State, Time } from "../parts.js"
import { useQuery } from "../router.js"
import { Pager, Table } from "../table.js"

/** A person who looks at a list sees what others did within this time. */
const refreshMillis = 5_000

const statuses = ["dead", "uncertain", "retrying", "failed", "refused", "sending", "given-up", "sent"]

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
  if (status === "sent") return []
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
  {
    head: "State",
    cell: (/** @type {any} */ { status, taskState }) =>
      html`<${State}
          of=${status}
        />${taskState === "dead" && status !== "dead" ? html` <${State} of="dead" text="not tried again" />` : null}`
  },
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
  const [{ cursor, sinceSeconds, status }] = useQuery()
  const load = useLoad(withQuery("/admin/mail", { status, sinceSeconds, cursor }), { everyMillis: refreshMillis })
  return html`<${PageHead} title="Mail" />
    <${Filter}
      fields=${[
        { name: "status", label: "State", options: statuses, any: "all that wait" },
        { name: "sinceSeconds", label: "Changed within", options: sinceOptions }
      ]}
    />
    <${Section} title="Mail">
      <${Loaded} load=${load} what="Looking for mail">
        ${(/** @type {any} */ { items, nextCursor }) =>
          html`${
              items.length === 0
                ? html`<${Empty}>${status === undefined ? "No mail waits." : `No mail is ${status}.`}<//>`
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
