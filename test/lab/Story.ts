/**
 * The story of a case: each actor's steps, and the tables and the topic after them, as short as possible.
 */
import type { TaskRow } from "./LabDatabase.ts"
import type { TopicRecord, Violation, World } from "./Oracle.ts"
import { letterOf } from "./Requests.ts"
import { labTask } from "./TaskRequests.ts"

interface Line {
  readonly who: string
  readonly what: Array<string>
  /** The state after the steps, if it changed. */
  state: string | undefined
}

/** The reads that a story tells. */
const fetches = new Set(["select outbox_events", "select outbox_holds", "select outbox_events for update skip locked"])

/** Steps that the story leaves out: reads, fault points, the start of a transaction. */
const isSilent = (label: string) =>
  label === "BEGIN" ||
  label === "wait" ||
  label === "the work is done" ||
  label === "update inbox_holds (sweep)" ||
  label.startsWith("SAVEPOINT") ||
  label.startsWith("RELEASE") ||
  /^[a-z]+\.[a-z-]+$/.test(label) ||
  (label.startsWith("select") && !fetches.has(label))

const phrases: Readonly<Record<string, string>> = {
  "select outbox_events": "fetches what waits",
  "select outbox_holds": "fetches what waits",
  "select outbox_events for update skip locked": "fetches with SKIP LOCKED",
  "delete outbox_events + insert event_log": "marks: queue → archive",
  "delete outbox_events": "marks: out of the queue",
  "insert event_log": "archives it",
  "insert orders + insert order_lines + insert outbox_events": "writes the order and its event",
  "update orders + insert outbox_events": "updates the order and writes its event",
  "insert outbox_holds": "holds the order",
  "delete outbox_events + insert outbox_parked": "parks what waits behind it",
  "update outbox_holds": "notes it at the hold",
  "delete outbox_parked + insert event_log": "archives it",
  "delete outbox_parked": "is done with it",
  "insert inbox_holds": "holds the aggregate",
  "insert inbox_parked": "parks it",
  "update inbox_holds": "notes it at the hold",
  "delete inbox_parked": "is done with it",
  "delete inbox_holds": "ends the hold",
  "delete inbox_parked + insert inbox_dead_letters": "makes it a dead letter",
  "delete inbox_dead_letters + insert inbox_parked": "brings it back",
  "insert lab_effects": "has its effect",
  "insert processed_events + update consumer_cursors + insert consumer_cursors":
    "marks what is new, and moves its cursors",
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
  "insert consumer_gaps": "notes what it passes",
  "insert idempotency_keys": "claims the key",
  "commit the offset": "commits the offset",
  "charge at the gateway": "charges at the gateway",
  "the gateway's answer": "gets the gateway's answer",
  "update orders + update payments + update idempotency_keys + insert outbox_events":
    "records the outcome and its event",
  "update orders + update payments + insert outbox_events": "records the outcome and its event",
  "refund at the gateway": "gives back at the gateway",
  "look the charge up": "looks the charge up at the gateway",
  "look the refund up": "looks the refund up at the gateway",
  "insert payments": "records the intent to charge",
  "insert idempotency_keys + insert payments": "records the intent to charge",
  "insert outbox_tasks": "enqueues a task",
  "update outbox_tasks (claim)": "claims what is due",
  "update outbox_tasks (end)": "ends the run",
  "update outbox_tasks (renew)": "renews its leases",
  "update outbox_tasks (take back)": "takes back leases that ran out",
  "update outbox_tasks (settle)": "settles the recovery",
  "update outbox_tasks (other)": "updates the task",
  "insert lab_work": "writes what the task is for",
  "do the work": "does the work",
  "delete event_log_default": "deletes what is old beside the archive's days",
  "delete processed_events_default": "deletes what is old beside the marks' days"
}

const phraseOf = (label: string): string => {
  const known = phrases[label] ?? (label.startsWith("ROLLBACK TO") ? "takes that back" : undefined)
  if (known !== undefined) return known
  if (label.startsWith("publish ")) return `sends ${label.slice("publish ".length)}`
  if (label.startsWith("ack of ")) return "gets the ack"
  return label.replaceAll(/\b(insert|update|delete|make|lock|drop) /g, "$1s ")
}

export class Story {
  /** Letters of orders by id: the first placed order is A. */
  readonly letters = new Map<string, string>()
  private readonly lines: Array<Line> = []
  private lastState = ""

  /** An event's name: `A2` is version 2 of order A. */
  readonly named = ({ order, version }: { readonly order: string; readonly version: number }): string =>
    `${this.letters.get(order) ?? "?"}${version}`

  private readonly taskNames = new Map<string, string>()

  /** A number for each of the lab's tasks; for a payment's recovery a name with its order. */
  taskNamed({ id, type }: Pick<TaskRow, "id" | "type">): string {
    if (type !== labTask.name) return type
    const name = this.taskNames.get(id) ?? `T${this.taskNames.size + 1}`
    this.taskNames.set(id, name)
    return name
  }

  /** The text with orders by their letters. */
  readable(text: string): string {
    let read = text
    for (const [id, letter] of this.letters) read = read.replaceAll(id, letter)
    return read
  }

  /** Adds a step of an actor; steps in a row make one line. */
  step(who: string, label: string): void {
    if (!isSilent(label)) this.says(who, phraseOf(label))
  }

  says(who: string, what: string): void {
    const last = this.lines.at(-1)
    if (last !== undefined && last.who === who && last.state === undefined) last.what.push(what)
    else this.lines.push({ who, what: [what], state: undefined })
  }

  /** Adds the state, if it has changed. */
  see(world: World): void {
    const state = this.describe(world)
    if (state === this.lastState) return
    this.lastState = state
    const last = this.lines.at(-1)
    if (last !== undefined) last.state = state
  }

  /** The effects and the holds of one consumer. */
  private describeConsumer({ effects, inbox }: World["committed"], consumer: string, nameOf: World["nameOf"]) {
    const at = consumer === "analytics" ? "" : ` at ${consumer}`
    const mine = <A extends { readonly consumer: string }>(all: ReadonlyArray<A>) =>
      all.filter((one) => one.consumer === consumer)
    const applied = mine(effects)
    const letters = mine(inbox.letters)
    const holds = mine(inbox.holds).filter(({ status }) => status !== "dead")
    const waiting = mine(inbox.waiting).map(({ event }) => {
      const hold = holds.find((one) => one.event === event)
      return `${nameOf(event)}${hold === undefined ? "" : ` (${hold.status})`}`
    })
    return [
      ...(applied.length > 0 ? [`effects${at}: ${applied.map(this.named).join(" ")}`] : []),
      ...(waiting.length > 0 ? [`parked${at}: ${waiting.join(" ")}`] : []),
      ...(letters.length > 0
        ? [`given up${at}: ${letters.map(({ event, status }) => `${nameOf(event)} (${status})`).join(" ")}`]
        : [])
    ]
  }

  private describe({ captures, committed, givenBack, groups, nameOf, topic }: World): string {
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
    for (const { name } of groups) parts.push(...this.describeConsumer(committed, name, nameOf))
    if (committed.payments.length > 0)
      parts.push(
        `payments: ${committed.payments.map(({ order, status }) => `${this.letters.get(order) ?? "?"} ${status}`).join(", ")}`
      )
    const letters = (all: World["captures"]) => all.map(({ amountMinor }) => letterOf(amountMinor)).join(" ")
    if (captures.length > 0) parts.push(`captured: ${letters(captures)}`)
    if (givenBack.length > 0) parts.push(`given back: ${letters(givenBack)}`)
    // The story leaves out a recovery that had nothing to do.
    const tasks = committed.tasks.filter(({ state, type }) => type === labTask.name || state !== "completed")
    if (tasks.length > 0)
      parts.push(`tasks: ${tasks.map((task) => `${this.taskNamed(task)} ${task.state}`).join(", ")}`)
    if (committed.work.length > 0)
      parts.push(
        `work: ${committed.work.map(({ task }) => this.taskNamed({ id: task, type: labTask.name })).join(" ")}`
      )
    return parts.join(" · ")
  }

  /** Numbered lines, the state beneath each, and the invariant that broke. */
  print(violation: Violation | undefined): string {
    const text: Array<string> = []
    this.lines.forEach(({ state, what, who }, index) => {
      text.push(...wrapped(`${String(index + 1).padStart(3)}. `, `${who} ${collapsed(what).join("; ")}`, "; "))
      if (state !== undefined) text.push(...wrapped("       ", state, " · "))
    })
    text.push(violation === undefined ? "All invariants hold." : `BROKEN: ${violation.invariant}. ${violation.detail}.`)
    return text.join("\n")
  }

  /** The number of lines. */
  get length(): number {
    return this.lines.length
  }
}

/** Equal steps in a row, once with their count. */
const collapsed = (what: ReadonlyArray<string>): ReadonlyArray<string> => {
  const runs: Array<{ readonly text: string; count: number }> = []
  for (const text of what) {
    const last = runs.at(-1)
    if (last?.text === text) last.count += 1
    else runs.push({ text, count: 1 })
  }
  return runs.map(({ count, text }) => (count === 1 ? text : `${text} (${count} times)`))
}

/** The width of a page of this project. */
const maxWidth = 120

/** `text` in lines of at most that width, broken after `separator`. Later lines are indented to the first line's text. */
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

/** The partitions, each in offset order. */
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
