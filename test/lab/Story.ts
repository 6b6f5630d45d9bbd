/**
 * The story of a case: who did what, and what the tables and the topic held then, short enough to be read aloud.
 */
import type { TopicRecord, Violation, World } from "./Oracle.ts"

interface Line {
  readonly who: string
  readonly what: Array<string>
  /** What could be seen afterwards, where it changed. */
  state: string | undefined
}

/** The reads that a story tells. */
const fetches = new Set(["select outbox_events", "select outbox_holds", "select outbox_events for update skip locked"])

/** Steps that tell a reader nothing: reads, fault points, the start of a transaction. */
const isSilent = (label: string) =>
  label === "BEGIN" ||
  label === "wait" ||
  /^[a-z]+\.[a-z-]+$/.test(label) ||
  (label.startsWith("select") && !fetches.has(label))

const phrases: Readonly<Record<string, string>> = {
  "select outbox_events": "fetches what waits",
  "select outbox_holds": "fetches what waits",
  "select outbox_events for update skip locked": "fetches with SKIP LOCKED",
  "delete outbox_events + insert event_log": "marks: queue → archive",
  "delete outbox_events": "marks: out of the queue",
  "insert orders + insert order_lines + insert outbox_events": "writes the order and its event",
  "update orders + insert outbox_events": "updates the order and writes its event",
  "insert outbox_holds": "holds the order",
  "delete outbox_events + insert outbox_parked": "parks what waits behind it",
  "update outbox_holds": "notes it at the hold",
  "delete outbox_parked + insert event_log": "archives it",
  "delete outbox_parked": "is done with it",
  "delete outbox_parked + insert outbox_events": "puts back what waited",
  "delete outbox_holds": "ends the hold",
  "delete outbox_parked + insert outbox_dead_letters": "makes it a dead letter",
  "delete outbox_dead_letters + insert outbox_parked": "brings it back",
  "insert operator_audit": "says who and why",
  "update payments": "updates the payment",
  "update idempotency_keys": "stores the answer",
  "insert revenue_daily + update revenue_daily": "adds to the revenue",
  "insert processed_events": "marks the events as seen",
  "select consumer_cursors": "looks how far it is",
  "update consumer_cursors + insert consumer_cursors": "notes how far it is",
  "insert idempotency_keys": "claims the key",
  "commit the offset": "commits the offset",
  "charge at the gateway": "charges at the gateway",
  "the gateway's answer": "gets the gateway's answer",
  "insert payments": "records the intent to charge"
}

const phraseOf = (label: string): string => {
  const known = phrases[label]
  if (known !== undefined) return known
  if (label.startsWith("publish ")) return `sends ${label.slice("publish ".length)}`
  if (label.startsWith("ack of ")) return "gets the ack"
  return label.replaceAll(/\b(insert|update|delete) /g, "$1s ")
}

export class Story {
  /** Letters of orders by id: the first one placed is A. */
  readonly letters = new Map<string, string>()
  private readonly lines: Array<Line> = []
  private lastState = ""

  /** An event as a reader names it: `A2`, version 2 of order A. */
  readonly named = ({ order, version }: { readonly order: string; readonly version: number }): string =>
    `${this.letters.get(order) ?? "?"}${version}`

  /** The text with orders by their letters. */
  readable(text: string): string {
    let read = text
    for (const [id, letter] of this.letters) read = read.replaceAll(id, letter)
    return read
  }

  /** A step of an actor; steps in a row make one line. */
  step(who: string, label: string): void {
    if (!isSilent(label)) this.says(who, phraseOf(label))
  }

  says(who: string, what: string): void {
    const last = this.lines.at(-1)
    if (last !== undefined && last.who === who && last.state === undefined) last.what.push(what)
    else this.lines.push({ who, what: [what], state: undefined })
  }

  /** Notes what can be seen now, if it is something else than before. */
  see(world: World): void {
    const state = this.describe(world)
    if (state === this.lastState) return
    this.lastState = state
    const last = this.lines.at(-1)
    if (last !== undefined) last.state = state
  }

  private describe({ captures, committed, topic }: World): string {
    const orders = committed.orders.map(
      (order) => `${this.letters.get(order.id) ?? "?"} ${order.status} v${order.version}`
    )
    const parts = [
      `orders: ${orders.join(", ") || "none"}`,
      `queue: ${committed.queue.map(this.named).join(" ") || "empty"}`,
      `topic: ${topicText(topic, this.named) || "empty"}`
    ]
    if (committed.refused.length > 0)
      parts.push(`refused: ${committed.refused.map((event) => `${this.named(event)} (${event.status})`).join(" ")}`)
    if (committed.effects.length > 0) parts.push(`effects: ${committed.effects.map(this.named).join(" ")}`)
    if (captures.length > 0) parts.push(`captured: ${captures.map((capture) => capture.order).join(" ")}`)
    return parts.join(" · ")
  }

  /** Numbered lines, what was seen beneath, and the invariant that broke. */
  print(violation: Violation | undefined): string {
    const text: Array<string> = []
    this.lines.forEach(({ state, what, who }, index) => {
      text.push(...wrapped(`${String(index + 1).padStart(3)}. `, `${who} ${collapsed(what).join("; ")}`, "; "))
      if (state !== undefined) text.push(...wrapped("       ", state, " · "))
    })
    text.push(violation === undefined ? "All invariants hold." : `BROKEN: ${violation.invariant}. ${violation.detail}.`)
    return text.join("\n")
  }

  /** How many lines a reader has to follow. */
  get length(): number {
    return this.lines.length
  }
}

/** What was done several times in a row, once with its count. */
const collapsed = (what: ReadonlyArray<string>): ReadonlyArray<string> => {
  const runs: Array<{ readonly text: string; count: number }> = []
  for (const text of what) {
    const last = runs.at(-1)
    if (last?.text === text) last.count += 1
    else runs.push({ text, count: 1 })
  }
  return runs.map(({ count, text }) => (count === 1 ? text : `${text} (${count} times)`))
}

/** As wide as a page of this project. */
const maxWidth = 120

/** `text` in lines of at most that width, broken behind `separator`; those after the first stand beneath its start. */
const wrapped = (start: string, text: string, separator: string): ReadonlyArray<string> => {
  const lines = [start]
  for (const [index, part] of text.split(separator).entries()) {
    const line = lines.at(-1)!
    const piece = index === 0 ? part : `${separator}${part}`
    if (index > 0 && line.length + piece.length > maxWidth) {
      lines[lines.length - 1] = `${line}${separator.trimEnd()}`
      lines.push(`${" ".repeat(start.length + 2)}${part}`)
    } else lines[lines.length - 1] = `${line}${piece}`
  }
  return lines
}

/** The partitions, each in its order. */
const topicText = (topic: ReadonlyArray<TopicRecord>, named: Story["named"]): string =>
  [...new Set(topic.map((record) => record.partition))]
    .toSorted((a, b) => a - b)
    .map((partition) =>
      topic
        .filter((record) => record.partition === partition)
        .map(named)
        .join(" ")
    )
    .join(" | ")
