/** Events that wait for a person, on both sides: the broker refused them, or a consumer can't apply them. */
import { withQuery } from "../api.js"
import { bulkAction } from "../bulk.js"
import { Count, decisionsOf } from "../decisions.js"
import { Filter, sinceOptions } from "../filter.js"
import { counted, number } from "../format.js"
import { html } from "../html.js"
import { live } from "../live.js"
import { useLoad } from "../load.js"
import { Empty, Id, Loaded, PageHead, Section, State, Time } from "../parts.js"
import { useQuery } from "../router.js"
import { useStore } from "../store.js"
import { Pager, Table } from "../table.js"
import { Actions } from "../act.js"
import { actionsOfInbox, actionsOfOutbox } from "./deadLetterActions.js"

/** A person who looks at a list sees what others did within this time. */
const refreshMillis = 5_000

const refused = (/** @type {number} */ count) =>
  count > 0 ? `, ${number(count)} could not be: ${count === 1 ? "its" : "their"} state has changed` : ""

/** The result of a bulk decision, as a sentence. */
const retold = (/** @type {any} */ { refusedCount, retried }) =>
  `${counted(retried, "event")} tried again${refused(refusedCount)}.`
const givenUp = (/** @type {any} */ { discarded, refusedCount }) =>
  `${counted(discarded, "event")} given up${refused(refusedCount)}.`

/**
 * What can be decided about all dead events that match.
 *
 * @param {{ readonly retryAll: string, readonly discardAll: string, readonly does: string, readonly gives: string }} side
 * @param {Readonly<Record<string, unknown>>} filter
 * @param {{ readonly which: string, readonly onDone: () => void }} of
 */
const decideAll = ({ discardAll, does, gives, retryAll }, filter, { onDone, which }) => {
  const of = { filter, thing: "dead event", onDone }
  return [
    bulkAction({ ...of, label: `Retry all${which}`, path: retryAll, does, told: retold }),
    /** @type {import("../act.js").Action} */ ({
      ...bulkAction({ ...of, label: `Discard all${which}`, path: discardAll, does: gives, told: givenUp }),
      tone: "danger"
    })
  ]
}

const why = {
  head: "Why",
  as: /** @type {const} */ ("wide"),
  cell: (/** @type {any} */ { attempts, lastError, status }) =>
    html`<span class="error"
        >${lastError ?? (status === "parked" ? "waits behind an earlier event" : status === "gap" ? "an earlier version has not come" : "–")}</span
      >
      ${attempts === null ? null : html`<small class="dim">${counted(attempts, "attempt")}</small>`}`
}

/** @param {{ readonly type: string | undefined, readonly id: string, readonly version: number | null }} props */
const Aggregate = ({ id, type = "Order", version }) =>
  html`<${Id} id=${id} ...${type === "Order" ? { href: `/console/orders/${encodeURIComponent(id)}` } : {}} />
    ${version === null ? null : html`<small class="dim">version ${version}</small>`}`

const status = {
  head: "State",
  cell: (/** @type {any} */ { nextAttemptAt, status }) =>
    html`<${State}
        of=${status}
      />${nextAttemptAt === null ? null : html`<small class="dim">next <${Time} at=${nextAttemptAt} /></small>`}`
}

const sides = {
  outbox: {
    tab: "Refused by the broker",
    decisions: ["outbox event"],
    list: "/admin/outbox/events",
    causes: "/admin/outbox/causes",
    retryAll: "/admin/dead-letters/retry",
    discardAll: "/admin/dead-letters/discard",
    gives: "will be given up. The other events of their orders go on. This is final.",
    filters: ["topic", "type", "aggregateId", "cause", "sinceSeconds"],
    states: ["dead", "retrying", "parked", "queued", "discarded"],
    any: "dead and retrying",
    where: { name: "topic", label: "Topic" },
    does: "will go to the broker again, in the order of versions.",
    keyOf: (/** @type {any} */ event) => event.eventId,
    nameOf: (/** @type {any} */ event) =>
      `${event.eventType} version ${event.aggregateVersion} of ${event.aggregateId}`,
    actions: actionsOfOutbox,
    columns: [
      {
        head: "Event",
        cell: (/** @type {any} */ { eventId, eventType, topic }) =>
          html`${eventType} <small class="dim">to ${topic}</small><br /><${Id}
              id=${eventId}
              href=${`/console/dead-letters/outbox/${eventId}`}
            />`
      },
      {
        head: "Order",
        cell: (/** @type {any} */ event) =>
          html`<${Aggregate} type=${event.aggregateType} id=${event.aggregateId} version=${event.aggregateVersion} />`
      },
      why,
      status,
      { head: "Written", cell: (/** @type {any} */ { occurredAt }) => html`<${Time} at=${occurredAt} />` }
    ]
  },
  inbox: {
    tab: "Not applied by a consumer",
    decisions: ["inbox event", "gap"],
    list: "/admin/inbox/dead-letters",
    causes: "/admin/inbox/causes",
    retryAll: "/admin/inbox/dead-letters/retry",
    filters: ["consumer", "type", "aggregateId", "cause", "sinceSeconds"],
    states: ["dead", "retrying", "gap", "parked", "discarded"],
    any: "dead, retrying and gaps",
    where: { name: "consumer", label: "Consumer" },
    discardAll: "/admin/inbox/dead-letters/discard",
    does: "will be tried again, in the order of versions.",
    gives: "will be given up for their consumer. The other events of their orders go on. This is final.",
    keyOf: (/** @type {any} */ event) => `${event.consumer} ${event.eventId}`,
    nameOf: (/** @type {any} */ event) => `${event.eventType ?? "record"} ${event.eventId} for ${event.consumer}`,
    actions: actionsOfInbox,
    columns: [
      {
        head: "Event",
        cell: (/** @type {any} */ { consumer, eventId, eventType }) =>
          html`${eventType ?? "can't be read"} <small class="dim">for ${consumer}</small><br /><${Id}
              id=${eventId}
              href=${`/console/dead-letters/inbox/${encodeURIComponent(consumer)}/${encodeURIComponent(eventId)}`}
            />`
      },
      {
        head: "Order",
        cell: (/** @type {any} */ event) =>
          html`<${Aggregate} type=${undefined} id=${event.aggregateId} version=${event.aggregateVersion} />`
      },
      why,
      status,
      { head: "Since", cell: (/** @type {any} */ { parkedAt }) => html`<${Time} at=${parkedAt} />` }
    ]
  }
}

/** @param {{ readonly current: "outbox" | "inbox" }} props */
const Tabs = ({ current }) =>
  html`<nav class="tabs" aria-label="Sides">
    ${Object.entries(sides).map(
      ([name, { decisions, tab }]) =>
        html`<a
          key=${name}
          href=${`/console/dead-letters?side=${name}`}
          aria-current=${name === current ? "page" : undefined}
          >${tab}<${Count}
            of=${(/** @type {any} */ overview) => decisionsOf(overview, ({ kind }) => decisions.includes(kind))}
        /></a>`
    )}
  </nav>`

/**
 * Failures of the same cause. Each can be tried again as a whole.
 *
 * @param {{ readonly side: "outbox" | "inbox", readonly filter: Readonly<Record<string, string | undefined>>, readonly onDone: () => void }} props
 */
const Causes = ({ filter, onDone, side }) => {
  const { causes, where } = sides[side]
  const [, change] = useQuery()
  const { cause: _, ...others } = filter
  const load = useLoad(withQuery(causes, others), { everyMillis: refreshMillis })
  const done = () => {
    load.reload()
    onDone()
  }
  const columns = [
    {
      head: "Cause",
      as: /** @type {const} */ ("wide"),
      cell: (/** @type {any} */ { cause }) => html`<span class="error">${cause}</span>`
    },
    {
      head: "What",
      cell: (/** @type {any} */ group) =>
        html`${group.eventType ?? "can't be read"}
          <small class="dim">${side === "outbox" ? "to" : "for"} ${group[where.name]}</small>`
    },
    { head: "State", cell: (/** @type {any} */ { status }) => html`<${State} of=${status} />` },
    { head: "Events", as: /** @type {const} */ ("number"), cell: (/** @type {any} */ { count }) => number(count) },
    { head: "First", cell: (/** @type {any} */ { first }) => html`<${Time} at=${first} />` },
    { head: "Last", cell: (/** @type {any} */ { last }) => html`<${Time} at=${last} />` },
    {
      head: "List",
      cell: (/** @type {any} */ { cause, eventType, status, ...group }) =>
        html`<button
          type="button"
          onClick=${() => change({ cause, status, type: eventType ?? "", [where.name]: group[where.name] })}
        >
          Show these
        </button>`
    }
  ]
  return html`<${Section} title="By cause">
    <${Loaded} load=${load} what="Looking for causes">
      ${(/** @type {any} */ { items }) =>
        items.length === 0
          ? html`<${Empty}>No failures${Object.values(others).some(Boolean) ? " match" : ""}.<//>`
          : html`<${Table}
              caption="Failures by cause"
              columns=${columns}
              rows=${items}
              keyOf=${(/** @type {any} */ group) => [group.cause, group.eventType, group[where.name], group.status].join(" ")}
              nameOf=${(/** @type {any} */ group) => `all that failed so: ${group.cause}`}
              actions=${(/** @type {any} */ group) =>
                group.status !== "dead"
                  ? []
                  : decideAll(
                      sides[side],
                      {
                        ...bodyFilter(others),
                        cause: group.cause,
                        type: group.eventType ?? undefined,
                        [where.name]: group[where.name]
                      },
                      { which: "", onDone: done }
                    )}
            />`}
    <//>
  <//>`
}

/**
 * The filter of a bulk call: seconds are a number there.
 *
 * @param {Readonly<Record<string, string | undefined>>} query
 */
const bodyFilter = ({ sinceSeconds, ...rest }) => ({
  ...Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined)),
  ...(sinceSeconds === undefined ? {} : { sinceSeconds: Number(sinceSeconds) })
})

export const Page = () => {
  const [query] = useQuery()
  const side = query["side"] === "inbox" ? "inbox" : "outbox"
  const of = sides[side]
  const known = useStore(live, ({ overview }) => overview)
  const filter = Object.fromEntries(of.filters.map((name) => [name, query[name]]))
  const path = withQuery(of.list, { ...filter, status: query["status"], cursor: query["cursor"] })
  const load = useLoad(path, { everyMillis: refreshMillis })
  const names = side === "inbox" ? (known?.consumers ?? []).map((/** @type {any} */ { consumer }) => consumer) : []
  return html`<${PageHead} title="Dead letters" />
    <${Tabs} current=${side} />
    <${Filter}
      key=${side}
      fields=${[
        { name: "status", label: "State", options: of.states, any: of.any },
        { ...of.where, ...(names.length === 0 ? {} : { options: names }) },
        { name: "type", label: "Event type", placeholder: "OrderPaid" },
        { name: "aggregateId", label: "Order", placeholder: "its id" },
        { name: "cause", label: "Cause", placeholder: "as below" },
        { name: "sinceSeconds", label: "Within", options: sinceOptions }
      ]}
    />
    <${Causes} side=${side} filter=${filter} onDone=${load.reload} />
    <${Section}
      title="Events"
      aside=${html`<${Actions}
        actions=${decideAll(of, bodyFilter(filter), { which: " that match", onDone: load.reload })}
      />`}
    >
      <${Loaded} load=${load} what="Looking for events">
        ${(/** @type {any} */ { items, nextCursor }) =>
          html`${
              items.length === 0
                ? html`<${Empty}
                    >No event is
                    ${query["status"] ?? of.any.replace(" and ", " or ")}${Object.values(filter).some(Boolean) ? " and matches" : ""}.<//
                  >`
                : html`<${Table}
                    caption="Events"
                    columns=${of.columns}
                    rows=${items}
                    keyOf=${of.keyOf}
                    nameOf=${of.nameOf}
                    actions=${(/** @type {any} */ event) => of.actions(event, load.reload)}
                  />`
            } <${Pager} nextCursor=${nextCursor} count=${items.length} />`}
      <//>
    <//>`
}
