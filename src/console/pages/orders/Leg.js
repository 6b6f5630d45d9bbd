/**
 * One change of an order as a diagram: the hops in a line, and then the consumers side by side with what each asks for.
 *
 * @import { Hop, Leg as LegType } from "../../types.ts"
 */
import { Actions } from "../../act.js"
import { millis, shortId } from "../../format.js"
import { html } from "../../html.js"
import { Copy, Id, Section, Sentence, State, Time } from "../../parts.js"
import { actionsOf } from "./hopActions.js"

/** The words of a hop's state. */
const words = {
  later: "not yet",
  done: "done",
  now: "under way",
  retrying: "retrying",
  gap: "gap",
  parked: "parked",
  waiting: "waiting",
  dead: "dead",
  discarded: "discarded",
  dropped: "dropped"
}

/** The words' place among the states that have a colour. */
const tones = {
  later: "later",
  done: "done",
  now: "processing",
  retrying: "retrying",
  gap: "gap",
  parked: "parked",
  waiting: "waiting",
  dead: "dead",
  discarded: "discarded",
  dropped: "dropped"
}

/**
 * A hop waits for itself only where the one before it is done. What comes after that is simply later.
 *
 * @param {ReadonlyArray<Hop>} hops
 * @returns {ReadonlyArray<Shown>}
 */
const withoutLater = (hops) => {
  const done = new Set(hops.filter(({ state }) => state === "done").map(({ id }) => id))
  return hops.map((hop) =>
    hop.state === "waiting" && hop.after !== null && !done.has(hop.after)
      ? { ...hop, state: "later", why: null, frees: null, page: null, command: null }
      : hop
  )
}

/**
 * The ids of the event and of the payment stand above the line once.
 *
 * @param {Hop} hop
 * @param {ReadonlyArray<string | null>} ids
 */
const withoutIds = (hop, ids) => ({ ...hop, facts: hop.facts.filter(({ value }) => !ids.includes(value)) })

/** @typedef {Omit<Hop, "state"> & { readonly state: Hop["state"] | "later" }} Shown */

/** @param {{ readonly hop: Shown }} props */
const HopState = ({ hop: { state } }) => html`<${State} of=${tones[state]} text=${words[state]} />`

/**
 * The line of hops up to where several follow one, and those that follow.
 *
 * @param {ReadonlyArray<Shown>} hops
 */
const splitHops = (hops) => {
  /** @type {Array<Shown>} */
  const line = []
  const followers = (/** @type {string | null} */ id) => hops.filter(({ after }) => after === id)
  let next = followers(null)
  while (next.length === 1 && next[0] !== undefined && next[0].kind !== "consumer") {
    line.push(next[0])
    next = followers(next[0].id)
  }
  const below = (/** @type {Shown} */ hop) => {
    /** @type {Array<Shown>} */
    const found = []
    const queue = [...followers(hop.id)]
    for (let one = queue.shift(); one !== undefined; one = queue.shift()) {
      found.push(one)
      queue.push(...followers(one.id))
    }
    return found
  }
  return { line, fan: next.map((hop) => ({ hop, below: below(hop) })) }
}

/** What is longer is an id or a key: the hop has room for its ends. */
const longFact = 28

/** @param {{ readonly of: Shown }} props */
const Facts = ({ of: { facts } }) =>
  facts.length === 0
    ? null
    : html`<ul class="hop-facts plain">
        ${facts.map(
          ({ name, value }) =>
            html`<li key=${name}>
              <span class="dim">${name}</span>
              <span title=${value}>${value.length > longFact ? shortId(value) : value}</span>
            </li>`
        )}
      </ul>`

/**
 * What a hop's times and traces are told by: the titles of its leg's hops, and whether there is more than one trace.
 *
 * @typedef {{ readonly titles: ReadonlyMap<string, string>, readonly isManyTraces: boolean }} Around
 */

/**
 * The time, and how long it took. What it took is since the hop before; where that one's time is later, it says since which.
 *
 * @param {{ readonly of: Shown, readonly around: Around }} props
 */
const When = ({ around: { titles }, of: { after, at, millis: taken, since, state } }) => {
  if (at === null) return state === "done" ? html`<span class="hop-time">its time is not kept</span>` : null
  const from = since === null ? undefined : titles.get(since)
  return html`<span class="hop-time">
    <${Time} at=${at} exact />
    ${
      taken === null || state !== "done"
        ? null
        : html` <b title=${`after ${from}`}>+${millis(taken)}</b>${since === after ? null : html` after ${from}`}`
    }
  </span>`
}

/** @param {{ readonly of: Shown, readonly around: Around }} props */
const Where = ({ around: { isManyTraces }, of: { process, traceId } }) =>
  html`${process === null ? null : html`<span class="dim hop-process">at ${process}</span>`}
  ${
    isManyTraces && traceId !== null
      ? html`<span class="dim hop-process"
          >trace <${Id} id=${traceId} href=${`/console/events?traceId=${traceId}`}
        /></span>`
      : null
  }`

/** @param {{ readonly hop: Shown, readonly around: Around }} props */
const InLine = ({ around, hop }) => {
  const { kind, state, title } = hop
  return html`<li class=${`hop ${state} is-${kind}`}>
    <span class="dot" aria-hidden="true"></span>
    <h3>${title}</h3>
    ${state === "done" ? html`<span class="unseen">done</span>` : html`<${HopState} hop=${hop} />`}
    <${When} of=${hop} around=${around} />
    <${Facts} of=${hop} />
    <${Where} of=${hop} around=${around} />
  </li>`
}

/**
 * What holds a hop and what frees it, with the actions.
 *
 * @param {{ readonly hop: Shown, readonly leg: LegType, readonly onDone: () => void, readonly isNamed?: boolean }} props
 */
const Held = ({ hop, isNamed = false, leg, onDone }) => {
  const { command, frees, kind, page, state, title, why } = hop
  if (state === "done" || (why === null && frees === null)) return null
  const actions = actionsOf(hop, leg, onDone)
  // Consumers stand side by side: their buttons say whose they are.
  const of = kind === "consumer" && actions.every(({ label }) => !label.includes(title)) ? `for ${title}` : undefined
  return html`<div class=${`held ${state}`}>
    ${isNamed ? html`<p class="row"><strong>${title}</strong><${HopState} hop=${hop} /></p>` : null}
    ${why === null ? null : html`<p><${Sentence} text=${why} /></p>`}
    ${frees === null ? null : html`<p class="dim">Frees it: <${Sentence} text=${frees} goesOn /></p>`}
    ${command === null ? null : html`<p class="id"><code>${command}</code><${Copy} text=${command} what="command" /></p>`}
    <${Actions} actions=${actions} of=${of}> ${page === null ? null : html`<a href=${`/console/${page}`}>Open</a>`} <//>
  </div>`
}

/** @param {{ readonly hop: Shown, readonly below: ReadonlyArray<Shown>, readonly leg: LegType, readonly around: Around, readonly onDone: () => void }} props */
const Consumer = ({ around, below, hop, leg, onDone }) =>
  html`<li class=${`effect ${hop.state}`}>
    <div class="row">
      <h3>${hop.title}</h3>
      <${HopState} hop=${hop} />
    </div>
    <${When} of=${hop} around=${around} />
    <${Facts} of=${hop} />
    <${Where} of=${hop} around=${around} />
    <${Held} hop=${hop} leg=${leg} onDone=${onDone} />
    ${
      below.length === 0
        ? null
        : html`<ul class="follows plain">
            ${below.map(
              (one) =>
                html`<li key=${one.id}>
                  <div class="row">
                    <h4>${one.title}</h4>
                    <${HopState} hop=${one} />
                  </div>
                  <${When} of=${one} around=${around} />
                  <${Facts} of=${one} />
                  <${Where} of=${one} around=${around} />
                  <${Held} hop=${one} leg=${leg} onDone=${onDone} />
                </li>`
            )}
          </ul>`
    }
  </li>`

/** @param {{ readonly leg: LegType, readonly onDone: () => void }} props */
export const Leg = ({ leg, onDone }) => {
  const { eventId, eventType, hops, millis: taken, paymentId, state, title, version } = leg
  const { fan, line } = splitHops(withoutLater(hops.map((hop) => withoutIds(hop, [eventId, paymentId]))))
  const traces = [...new Set(hops.flatMap(({ traceId }) => (traceId === null ? [] : [traceId])))]
  const around = { titles: new Map(hops.map(({ id, title }) => [id, title])), isManyTraces: traces.length > 1 }
  const aside = html`<span class="row dim">
    ${taken === null ? null : html`<span class="figure">${millis(taken)} in all</span>`}
    ${eventId === null ? null : html`<span>event <${Id} id=${eventId} href=${`/console/events/${eventId}`} /></span>`}
    ${paymentId === null ? null : html`<span>payment <${Id} id=${paymentId} href=${`/console/payments/${paymentId}`} /></span>`}
    ${traces.map((trace) => html`<span key=${trace}>trace <${Id} id=${trace} href=${`/console/events?traceId=${trace}`} /></span>`)}
  </span>`
  return html`<${Section}
    class=${`leg ${state}`}
    title=${`${title}${version === null ? "" : ` · version ${version}`}${eventType === null ? "" : ` · ${eventType}`}`}
    aside=${aside}
  >
    <ol class="hops" style=${{ "--hops": line.length }}>
      ${line.map((hop) => html`<${InLine} key=${hop.id} hop=${hop} around=${around} />`)}
    </ol>
    ${line.map((hop) => html`<${Held} key=${hop.id} hop=${hop} leg=${leg} onDone=${onDone} isNamed />`)}
    ${
      fan.length === 0
        ? null
        : html`<ul class="fan plain" aria-label="Consumers">
            ${fan.map(({ below, hop }) => html`<${Consumer} key=${hop.id} hop=${hop} below=${below} leg=${leg} around=${around} onDone=${onDone} />`)}
          </ul>`
    }
  <//>`
}
